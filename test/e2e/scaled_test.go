package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/receivertest"
)

// outlast lets an outage last its full length under make torture. Else what the test waited for before is enough.
func outlast(length time.Duration) {
	if full {
		<-time.After(length)
	}
}

// A server closes each connection 50 ms after answering, and a record comes every 60 ms: all arrive, none fails.
func TestKeepAliveRace(t *testing.T) {
	t.Parallel()
	n := 80
	if full {
		n = 500
	}
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.receiver = receivertest.New(t, receivertest.Options{IdleTimeout: 50 * time.Millisecond})
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, e.receiver.URL()))
	e.ingester()
	e.forwarder()
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	for i := range n {
		e.produce(i, 1, 1)
		<-tick.C
	}
	e.accounted(n)
	if got, _ := e.ask(`SELECT count(*)::text FROM ferry.failures`); got != "0" {
		t.Errorf("%s failed", got)
	}
}

// A certificate has expired and is renewed: what waits is sent then, no attempt is burnt, and nothing was sent to a
// server that could not prove who it is.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	current.Store(ca.issue(t, time.Now().Add(-time.Hour)))
	var received atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, kafkatest.Fake(t), 1)
	e.writeRoutes(fmt.Sprintf(routeFile, e.topic, "https://localhost:"+port))
	e.save(0, values(20)...)
	e.forwarder("SSL_CERT_FILE=" + ca.file)
	e.is(patience, "20", `SELECT count(*)::text FROM ferry.deliveries WHERE requests > 0 AND error LIKE 'tls%'`)
	outlast(30 * time.Second)
	if n := received.Load(); n != 0 {
		t.Errorf("%d requests were sent to a server with an expired certificate", n)
	}
	current.Store(ca.issue(t, time.Now().Add(time.Hour)))
	e.is(patience, "20", delivered)
	e.is(patience, "1", `SELECT max(attempts)::text FROM ferry.deliveries`)
	if n := received.Load(); n != 20 {
		t.Errorf("%d requests for 20 messages", n)
	}
}

// authority is a certificate authority for one test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a := &authority{key: newKey(t)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(a.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for localhost that ends at the given time.
func (a *authority) issue(t *testing.T, end time.Time) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}
