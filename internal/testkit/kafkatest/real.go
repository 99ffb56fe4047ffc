package kafkatest

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Broker is a real Kafka broker that is a child of this process.
type Broker struct {
	// Addr is its bootstrap address, host:port, the same over restarts. It is open to everybody.
	Addr string
	// Addrs are the addresses of the further listeners, by their names.
	Addrs map[string]string

	dir, java, libs string
	mu              sync.Mutex
	cmd             *exec.Cmd
	done            <-chan struct{}
}

// StartReal starts a real Kafka broker that keeps its data in dir, on ports of its own, and returns its address and how
// to stop it.
func StartReal(dir string) (addr string, stop func(), err error) {
	b, err := NewBroker(dir, nil)
	if err != nil {
		return "", nil, err
	}
	return b.Addr, b.Stop, nil
}

// Listener is a door for clients beside the one that is open to everybody.
type Listener struct {
	Name       string // upper case
	Protocol   string // SSL, SASL_PLAINTEXT or SASL_SSL
	Properties map[string]string
}

// NewBroker starts a real Kafka broker that keeps its data in dir. Properties are added to server.properties, or
// replace what stands there; those of a listener are for that one alone.
func NewBroker(dir string, properties map[string]string, listeners ...Listener) (*Broker, error) {
	java, err := need("java", "openjdk-17-jre-headless")
	if err != nil {
		return nil, err
	}
	libs, err := Fetch(context.Background())
	if err != nil {
		return nil, err
	}
	b := &Broker{dir: dir, java: java, libs: filepath.Join(libs, "*")}
	for try := 1; ; try++ {
		err = b.setUp(properties, listeners)
		if err == nil {
			err = b.Start()
		}
		if err == nil || try == 3 { // a port that was free may be taken by now
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("starting Kafka %s in %s: %w", kafkaVersion, dir, err)
	}
	return b, nil
}

// setUp writes server.properties with free ports and formats the data directory.
func (b *Broker) setUp(properties map[string]string, listeners []Listener) error {
	ports, err := freePorts(2 + len(listeners))
	if err != nil {
		return err
	}
	b.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	controller := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[1]))
	all := map[string]string{
		"process.roles":                                    "broker,controller",
		"node.id":                                          "1",
		"listeners":                                        "PLAINTEXT://" + b.Addr + ",CONTROLLER://" + controller,
		"advertised.listeners":                             "PLAINTEXT://" + b.Addr,
		"listener.security.protocol.map":                   "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"controller.listener.names":                        "CONTROLLER",
		"controller.quorum.bootstrap.servers":              controller,
		"log.dirs":                                         filepath.Join(b.dir, "data"),
		"auto.create.topics.enable":                        "false",
		"offsets.topic.replication.factor":                 "1",
		"offsets.topic.num.partitions":                     "4",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.num.partitions":             "4",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"group.initial.rebalance.delay.ms":                 "0",
		"group.min.session.timeout.ms":                     "1000",
		"group.consumer.min.session.timeout.ms":            "1000",
		"group.consumer.session.timeout.ms":                "6000",
		"group.consumer.min.heartbeat.interval.ms":         "100",
		"group.consumer.heartbeat.interval.ms":             "500",
		"log.cleaner.backoff.ms":                           "500",
		"log.segment.delete.delay.ms":                      "1000",
		"message.max.bytes":                                "16777216",
		"log.retention.check.interval.ms":                  "1000",
	}
	for k, v := range properties {
		all[k] = strings.NewReplacer("{addr}", b.Addr, "{controller}", controller).Replace(v)
	}
	b.Addrs = make(map[string]string, len(listeners))
	for i, l := range listeners {
		b.Addrs[l.Name] = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[2+i]))
		l.add(all, b.Addrs[l.Name])
	}
	var text strings.Builder
	for k, v := range all {
		text.WriteString(k + "=" + v + "\n")
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(b.dir, "data")); err != nil {
		return err
	}
	if err := os.WriteFile(b.properties(), []byte(text.String()), 0o600); err != nil {
		return err
	}
	cmd := b.command("-Xmx256m", "kafka.tools.StorageTool", "format", "--standalone", "-t", newID(), "-c", b.properties())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting its storage: %w\n%s", err, out)
	}
	return nil
}

// add adds the listener's own properties to those of its broker.
func (l Listener) add(all map[string]string, addr string) {
	all["listeners"] += "," + l.Name + "://" + addr
	all["advertised.listeners"] += "," + l.Name + "://" + addr
	all["listener.security.protocol.map"] += "," + l.Name + ":" + l.Protocol
	for k, v := range l.Properties {
		all["listener.name."+strings.ToLower(l.Name)+"."+k] = v
	}
}

func (b *Broker) properties() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) command(heap string, args ...string) *exec.Cmd {
	// Two test machines' worth of cores: cheap compiler, cheap collector.
	args = append([]string{heap, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", b.libs}, args...)
	return exec.Command(b.java, args...)
}

// Start starts the broker again after Stop or Kill, on the same port and data, and waits until it answers.
func (b *Broker) Start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	out, err := os.OpenFile(filepath.Join(b.dir, "kafka.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	b.cmd = b.command("-Xmx512m", "kafka.Kafka", b.properties())
	b.cmd.Stdout, b.cmd.Stderr = out, out
	if b.done, err = start(b.cmd); err != nil {
		return err
	}
	return b.waitUntilUp()
}

func (b *Broker) waitUntilUp() error {
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	retry := time.NewTicker(100 * time.Millisecond)
	defer retry.Stop()
	for {
		err := ping(b.Addr)
		if err == nil {
			return nil
		}
		select {
		case <-b.done:
			return fmt.Errorf("it ended (%s): %s", b.cmd.ProcessState, b.logTail())
		case <-deadline.C:
			_ = b.cmd.Process.Kill()
			<-b.done
			return fmt.Errorf("it did not answer within a minute (%w): %s", err, b.logTail())
		case <-retry.C:
		}
	}
}

func (b *Broker) logTail() string {
	text, _ := os.ReadFile(filepath.Join(b.dir, "kafka.log"))
	return string(text[max(0, len(text)-2000):])
}

// Stop stops the broker in order; after 15 seconds it is killed.
func (b *Broker) Stop() { b.end(syscall.SIGTERM) }

// Kill kills the broker.
func (b *Broker) Kill() { b.end(syscall.SIGKILL) }

// Freeze stops the broker's process from running (SIGSTOP): connections stay open and nothing answers.
func (b *Broker) Freeze() error { return b.signal(syscall.SIGSTOP) }

// Thaw lets a frozen broker run again.
func (b *Broker) Thaw() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s os.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cmd.Process.Signal(s)
}

func (b *Broker) end(s os.Signal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil || b.cmd.Process == nil {
		return
	}
	_ = b.cmd.Process.Signal(s)
	_ = b.cmd.Process.Signal(syscall.SIGCONT) // a frozen one would not hear it
	select {
	case <-b.done:
	case <-time.After(15 * time.Second):
		_ = b.cmd.Process.Kill()
		<-b.done
	}
}

// freePorts returns ports that were free a moment ago.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return nil, errors.New("a TCP listener without a TCP address")
		}
		ports[i] = addr.Port
	}
	return ports, nil
}

// newID is a cluster id as Kafka writes it.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f // StorageTool takes an id that begins with a dash for an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}
