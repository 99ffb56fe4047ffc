package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// kafkaVersion is the Apache Kafka that Real starts.
const kafkaVersion = "4.3.1"

const pom = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>ferry.test</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-core</artifactId><version>2.25.2</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.2</version></dependency>
  </dependencies>
</project>
`

var errMissing = errors.New("a program that the tests need is missing")

// need finds a program, or says how to come by it.
func need(program, debian string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: %s (Debian: apt-get install %s); or set FERRY_TEST_KAFKA to the address of a Kafka 4 broker",
			errMissing, program, debian)
	}
	return path, nil
}

// Fetch puts Kafka's jars into the user's cache, unless they are there, and returns their folder. It is safe to call
// from several processes at once: one fetches, the others wait.
func Fetch(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for Kafka: %w; set HOME or XDG_CACHE_HOME", err)
	}
	dir := filepath.Join(cache, "ferry", "kafka-"+kafkaVersion)
	libs := filepath.Join(dir, "libs")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making Kafka's cache: %w", err)
	}
	unlock, err := lock(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(libs); err == nil {
		return libs, nil // it was renamed into place when it was whole
	}
	mvn, err := need("mvn", "maven")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom), 0o600); err != nil {
		return "", fmt.Errorf("writing Kafka's pom: %w", err)
	}
	part := libs + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("clearing an unfinished fetch of Kafka: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Minute, errors.New("fetching Kafka took over 5 minutes"))
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", filepath.Join(dir, "pom.xml"),
		"dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching Kafka with Maven: %w\n%s", errors.Join(err, context.Cause(ctx)), out)
	}
	if err := os.Rename(part, libs); err != nil {
		return "", fmt.Errorf("putting Kafka's jars into place: %w", err)
	}
	return libs, nil
}
