package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a certificate authority of one test.
type Authority struct {
	// File has its certificate, PEM.
	File string

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority that trusts nobody but itself.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	a.cert = template // it signs itself
	a.cert, a.key = a.sign(t, template, nil)
	a.File = filepath.Join(a.dir, name+".pem")
	write(t, a.File, block("CERTIFICATE", a.cert.Raw))
	return a
}

// Certificate is what an authority confirmed.
type Certificate struct {
	Chain string // file with the certificate, PEM
	Key   string // file with its key, PEM
	Both  string // file with both, as Kafka takes them for a key store
}

// Issue confirms a name or an IP address until a time.
func (a *Authority) Issue(t testing.TB, host string, until time.Time) Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	cert, key := a.sign(t, template, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	base := filepath.Join(a.dir, cert.SerialNumber.String())
	c := Certificate{Chain: base + ".crt", Key: base + ".key", Both: base + ".both"}
	write(t, c.Chain, block("CERTIFICATE", cert.Raw))
	write(t, c.Key, block("PRIVATE KEY", der))
	write(t, c.Both, block("PRIVATE KEY", der)+block("CERTIFICATE", cert.Raw))
	return c
}

// sign makes a certificate with a key of its own, signed with the given one, or with its own.
func (a *Authority) sign(t testing.TB, template *x509.Certificate, with *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if with == nil {
		with = key
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), with)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
