package kafkatest

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// The listeners of a secured broker. All but the last two have a certificate that is right.
const (
	TLS       = "TLS"       // encryption
	MutualTLS = "MTLS"      // the client needs a certificate too
	SASL      = "LOGIN"     // TLS, with PLAIN and SCRAM
	OAuth     = "OAUTH"     // TLS, with unsigned tokens
	Expired   = "EXPIRED"   // the certificate is over
	OtherHost = "ELSEWHERE" // the certificate is for another host
)

// Secured is a real broker that has each kind of listener.
type Secured struct {
	*Cluster
	Broker *Broker
	CA     *Authority
	Client Certificate // for MutualTLS
}

// The user that PLAIN knows; SCRAM's are made with SetPassword.
const (
	PlainUser     = "plain-user"
	PlainPassword = "plain,geheim"
)

// reauth is how long a login with a token is good for, unless the token ends before.
const reauth = time.Hour

// NewSecured starts a broker with all listeners for one test. With its plain listener the test looks on.
func NewSecured(t testing.TB) *Secured {
	t.Helper()
	s := &Secured{CA: NewAuthority(t, "ca")}
	later := time.Now().Add(24 * time.Hour)
	s.Client = s.CA.Issue(t, "client", later)
	right := s.store(s.CA.Issue(t, "127.0.0.1", later))
	const modules = "org.apache.kafka.common.security."
	b, err := NewBroker(t.TempDir(), map[string]string{"num.network.threads": "1", "connection.failed.authentication.delay.ms": "50"},
		Listener{Name: TLS, Protocol: "SSL", Properties: right},
		Listener{Name: MutualTLS, Protocol: "SSL", Properties: with(right, map[string]string{
			"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": s.CA.File,
		})},
		Listener{Name: SASL, Protocol: "SASL_SSL", Properties: with(right, map[string]string{
			"sasl.enabled.mechanisms":        "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
			"plain.sasl.jaas.config":         modules + `plain.PlainLoginModule required user_` + PlainUser + `="` + PlainPassword + `";`,
			"scram-sha-256.sasl.jaas.config": modules + "scram.ScramLoginModule required;",
			"scram-sha-512.sasl.jaas.config": modules + "scram.ScramLoginModule required;",
		})},
		Listener{Name: OAuth, Protocol: "SASL_SSL", Properties: with(right, map[string]string{
			"sasl.enabled.mechanisms":                        "OAUTHBEARER",
			"connections.max.reauth.ms":                      fmt.Sprint(reauth.Milliseconds()),
			"oauthbearer.sasl.jaas.config":                   modules + "oauthbearer.OAuthBearerLoginModule required;",
			"oauthbearer.sasl.server.callback.handler.class": modules + "oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
			"oauthbearer.sasl.login.callback.handler.class":  modules + "oauthbearer.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
		})},
		Listener{Name: Expired, Protocol: "SSL", Properties: s.store(s.CA.Issue(t, "127.0.0.1", time.Now().Add(-time.Hour)))},
		Listener{Name: OtherHost, Protocol: "SSL", Properties: s.store(s.CA.Issue(t, "127.0.0.2", later))},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	s.Broker, s.Cluster = b, At(t, b.Addr)
	return s
}

func (s *Secured) store(c Certificate) map[string]string {
	return map[string]string{"ssl.keystore.type": "PEM", "ssl.keystore.location": c.Both}
}

func with(a, b map[string]string) map[string]string {
	all := make(map[string]string, len(a)+len(b))
	for _, m := range []map[string]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// FakeSASL starts a kfake broker that lets nobody in without a login. PLAIN knows PlainUser; SCRAM's users are made with
// SetPassword.
func FakeSASL(t testing.TB, opts ...kfake.Opt) *Cluster {
	t.Helper()
	const plainMechanism = "PLAIN"
	return fake(t, append(opts, kfake.EnableSASL(), kfake.Superuser(plainMechanism, PlainUser, PlainPassword)),
		kgo.SASL(plain.Auth{User: PlainUser, Pass: PlainPassword}.AsMechanism()))
}

// The mechanisms of SetPassword.
const (
	SCRAM256 = "SCRAM-SHA-256"
	SCRAM512 = "SCRAM-SHA-512"
)

// SetPassword makes a SCRAM user, or gives it another password.
func (c *Cluster) SetPassword(t testing.TB, mechanism, user, password string) {
	t.Helper()
	const iterations = 4096
	up := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	up.Name, up.Iterations, up.Salt = user, iterations, make([]byte, 16)
	_, _ = rand.Read(up.Salt)
	var err error
	switch mechanism {
	case SCRAM256:
		up.Mechanism = 1
		up.SaltedPassword, err = pbkdf2.Key(sha256.New, password, up.Salt, iterations, sha256.Size)
	case SCRAM512:
		up.Mechanism = 2
		up.SaltedPassword, err = pbkdf2.Key(sha512.New, password, up.Salt, iterations, sha512.Size)
	default:
		t.Fatalf("there is no mechanism %s", mechanism)
	}
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	req.Upsertions = append(req.Upsertions, up)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Results[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("setting the password of %s: %v", user, err)
	}
}
