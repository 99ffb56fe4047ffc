package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// inspector looks at the brokers' certificates with Go's eyes when librdkafka could not verify them: librdkafka does not
// say what is wrong, an expired certificate and one of another host look like a wrong authority. Nothing is decided by
// it.
type inspector struct {
	cfg   Config
	looks sync.WaitGroup

	mu     sync.Mutex // guards what follows
	at     time.Time
	say    string
	cancel context.CancelFunc // of the look under way
	over   bool
}

const (
	inspectInterval = 15 * time.Second
	inspectLimit    = 3 * time.Second // for one broker
)

// look begins to look, unless that was done a short time ago. What it finds is told with the next error: librdkafka
// tries to connect every second or so.
func (i *inspector) look() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over || time.Since(i.at) < inspectInterval {
		return
	}
	i.at = time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	i.looks.Go(func() {
		defer cancel()
		say := i.inspect(ctx)
		i.mu.Lock()
		defer i.mu.Unlock()
		i.say = say
	})
}

// found is what was found last; empty if nothing was.
func (i *inspector) found() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.say
}

// stop ends a look under way, and no other begins.
func (i *inspector) stop() {
	i.mu.Lock()
	i.over = true
	if i.cancel != nil {
		i.cancel()
	}
	i.mu.Unlock()
	i.looks.Wait()
}

// inspect returns what is wrong with the certificate of the first broker that has a wrong one.
func (i *inspector) inspect(ctx context.Context) string {
	roots, err := i.roots()
	if err != nil {
		return ""
	}
	for _, broker := range i.cfg.Brokers {
		var wrong *tls.CertificateVerificationError
		if errors.As(handshake(ctx, broker, roots), &wrong) {
			return "the certificate of " + broker + ": " + whatIsWrong(wrong.Err)
		}
	}
	return ""
}

// whatIsWrong leaves out the current time, which would make a new line of the log of each look.
func whatIsWrong(err error) string {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "it is valid from " + invalid.Cert.NotBefore.Format(time.RFC3339) + " to " + invalid.Cert.NotAfter.Format(time.RFC3339)
	}
	return err.Error()
}

// handshake connects to a broker, says nothing, and returns what was wrong.
func handshake(ctx context.Context, broker string, roots *x509.CertPool) error {
	host, _, err := net.SplitHostPort(broker)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, inspectLimit)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", broker)
	if err != nil {
		return err
	}
	return conn.Close()
}

// roots are the authorities that the properties name, else the system's.
func (i *inspector) roots() (*x509.CertPool, error) {
	if pem := i.cfg.Properties["ssl.ca.pem"]; pem != "" {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(pem))
		return roots, nil
	}
	path := i.cfg.Properties["ssl.ca.location"]
	if path == "" || path == "probe" {
		return x509.SystemCertPool()
	}
	names := []string{path}
	if entries, err := os.ReadDir(path); err == nil {
		names = nil
		for _, e := range entries {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	roots := x509.NewCertPool()
	for _, name := range names {
		pem, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		roots.AppendCertsFromPEM(pem)
	}
	return roots, nil
}
