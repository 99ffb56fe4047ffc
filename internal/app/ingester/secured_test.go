package ingester_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ferry-forward/ferry/internal/message"
	"github.com/ferry-forward/ferry/internal/testkit/kafkatest"
	"github.com/ferry-forward/ferry/internal/testkit/pgtest"
	"github.com/ferry-forward/ferry/internal/testkit/proctest"
)

// kafkaConfig writes properties, names and values in turn, as a setting.
func kafkaConfig(kv ...string) string {
	var parts []string
	for i := 0; i < len(kv); i += 2 {
		parts = append(parts, kv[i]+"="+strings.ReplaceAll(kv[i+1], ",", `\,`))
	}
	return "FERRY_KAFKA_CONFIG=" + strings.Join(parts, ",")
}

// member is an ingester that reads a topic of its own.
type member struct {
	proc       *proctest.Proc
	url, topic string
	env        []string
	ids        int
}

// join starts an ingester at a listener. Its log has all that librdkafka can say.
func join(t *testing.T, c *kafkatest.Cluster, db, addr, config string) *member {
	t.Helper()
	m := &member{topic: c.Topic(t, "secured", 1)}
	m.env = append(routes(t, m.topic), "FERRY_DATABASE_URL="+db, "FERRY_DATABASE_MAX_CONNS=3", "FERRY_KAFKA_BROKERS="+addr,
		"FERRY_KAFKA_GROUP="+m.topic, config, "FERRY_LOG_LEVEL=debug")
	m.proc, m.url = start(t, m.env)
	return m
}

// rereads reads again what the member has read, with its settings.
func (m *member) rereads(t *testing.T) {
	t.Helper()
	stdout, _, code := ingester(t, m.env, "reread", "--topic", m.topic, "--partition", "0", "--from", "0", "--to", fmt.Sprint(m.ids))
	if want := fmt.Sprintf("read %d record of %s/0 [0, %d): a: 0 stored, %d duplicate\n", m.ids, m.topic, m.ids, m.ids); code != 0 || stdout != want {
		t.Errorf("exit %d: %s, want %s", code, stdout, want)
	}
}

// flows writes a record and waits until it is stored and committed, and the process ready.
func (m *member) flows(t *testing.T, c *kafkatest.Cluster) {
	t.Helper()
	m.ids++
	c.Produce(t, m.topic, kafkatest.Value(fmt.Sprintf(`{"id":"%s-%d"}`, m.topic, m.ids)))
	wait(t, m.url+"/metrics", 200, stored(m.topic, m.ids))
	kafkatest.Wait(t, "the commit", func() bool {
		return c.Committed(t, m.topic)[message.TopicPartition{Topic: m.topic}].Offset == int64(m.ids)
	})
	wait(t, m.url+"/readyz", 200, `"ready":true`)
}

// refused waits until the process tells by readiness why it is not let in.
func (m *member) refused(t *testing.T, why string) {
	t.Helper()
	wait(t, m.url+"/readyz", 503, `"kafka":{"ok":false,"why":"`, why)
	_, body, err := get(t, m.url+"/readyz")
	if err != nil || strings.Contains(body, "geheim") {
		t.Errorf("readiness shows a secret, or is gone: %v %s", err, body)
	}
}

// TestLogins at kfake: right passwords are let in, wrong ones are told, and let in once the broker takes them.
func TestLogins(t *testing.T) {
	t.Parallel()
	c, db := kafkatest.FakeSASL(t), pgtest.New(t)
	login := func(mechanism, user, password string) string {
		return kafkaConfig("security.protocol", "sasl_plaintext", "sasl.mechanism", mechanism, "sasl.username", user,
			"sasl.password", password, "debug", "all")
	}
	c.SetPassword(t, kafkatest.SCRAM256, "short", "geheim-256")
	c.SetPassword(t, kafkatest.SCRAM512, "long", "geheim-512")
	c.SetPassword(t, kafkatest.SCRAM256, "late", "another")
	late := join(t, c, db, c.Addr, login(kafkatest.SCRAM256, "late", "geheim-late"))
	wrong := join(t, c, db, c.Addr, login("PLAIN", kafkatest.PlainUser, "geheim-wrong"))
	in := []*member{
		join(t, c, db, c.Addr, login("PLAIN", kafkatest.PlainUser, kafkatest.PlainPassword)),
		join(t, c, db, c.Addr, login(kafkatest.SCRAM256, "short", "geheim-256")),
		join(t, c, db, c.Addr, login(kafkatest.SCRAM512, "long", "geheim-512")),
	}
	for _, m := range in {
		m.flows(t, c)
	}
	late.refused(t, "SASL authentication error")
	wrong.refused(t, "SASL authentication error")
	c.SetPassword(t, kafkatest.SCRAM256, "late", "geheim-late")
	late.flows(t, c)
	for _, m := range append(in, late, wrong) {
		stop(t, m.proc)
	}
}

// TestSecuredKafka has one real broker with a listener of each kind.
func TestSecuredKafka(t *testing.T) {
	t.Parallel()
	s, db := kafkatest.NewSecured(t), pgtest.New(t)
	t.Run("refused", func(t *testing.T) { t.Parallel(); isRefused(t, s, db) })
	t.Run("let in", func(t *testing.T) { t.Parallel(); isLetIn(t, s, db) })
	t.Run("tokens", func(t *testing.T) { t.Parallel(); tokens(t, s, db) })
}

func isLetIn(t *testing.T, s *kafkatest.Secured, db string) {
	tls := []string{"ssl.ca.location", s.CA.File, "debug", "all"}
	login := func(mechanism, user, password string) string {
		return kafkaConfig(append(tls, "security.protocol", "sasl_ssl", "sasl.mechanism", mechanism, "sasl.username", user, "sasl.password", password)...)
	}
	s.SetPassword(t, kafkatest.SCRAM256, "short", "geheim-256")
	s.SetPassword(t, kafkatest.SCRAM512, "long", "geheim-512")
	var members []*member
	for _, in := range []struct{ listener, config string }{
		{kafkatest.TLS, kafkaConfig(append(tls, "security.protocol", "ssl")...)},
		{kafkatest.MutualTLS, kafkaConfig(append(tls, "security.protocol", "ssl",
			"ssl.certificate.location", s.Client.Chain, "ssl.key.location", s.Client.Key)...)},
		{kafkatest.SASL, login("PLAIN", kafkatest.PlainUser, kafkatest.PlainPassword)},
		{kafkatest.SASL, login(kafkatest.SCRAM256, "short", "geheim-256")},
		{kafkatest.SASL, login(kafkatest.SCRAM512, "long", "geheim-512")},
		{kafkatest.OAuth, kafkaConfig(append(tls, "security.protocol", "sasl_ssl", "sasl.mechanism", "OAUTHBEARER",
			"enable.sasl.oauthbearer.unsecure.jwt", "true", "sasl.oauthbearer.config", "principal=ferry lifeSeconds=60")...)},
	} {
		members = append(members, join(t, s.Cluster, db, s.Broker.Addrs[in.listener], in.config))
	}
	for _, m := range members {
		m.flows(t, s.Cluster)
		m.rereads(t)
	}
	for _, m := range members {
		stop(t, m.proc)
	}
}

func isRefused(t *testing.T, s *kafkatest.Secured, db string) {
	stranger := kafkatest.NewAuthority(t, "stranger")
	unknown := stranger.Issue(t, "client", time.Now().Add(time.Hour))
	s.SetPassword(t, kafkatest.SCRAM512, "late", "another")
	ssl := func(kv ...string) string {
		return kafkaConfig(append(kv, "security.protocol", "ssl", "ssl.ca.location", s.CA.File)...)
	}
	login := func(mechanism, user, password string) string {
		return kafkaConfig("ssl.ca.location", s.CA.File, "security.protocol", "sasl_ssl", "sasl.mechanism", mechanism,
			"sasl.username", user, "sasl.password", password, "reconnect.backoff.max.ms", "1000")
	}
	cases := []struct{ listener, config, why string }{
		{kafkatest.TLS, kafkaConfig("security.protocol", "ssl", "ssl.ca.location", stranger.File), "certificate signed by unknown authority"},
		{kafkatest.TLS, kafkaConfig("security.protocol", "ssl"), "certificate signed by unknown authority"},
		{kafkatest.Expired, ssl(), "it is valid from "},
		{kafkatest.OtherHost, ssl(), "valid for 127.0.0.2, not 127.0.0.1"},
		{kafkatest.MutualTLS, ssl(), "bad certificate"},
		{kafkatest.MutualTLS, ssl("ssl.certificate.location", unknown.Chain, "ssl.key.location", unknown.Key), "bad certificate"},
		{kafkatest.TLS, kafkaConfig("client.id", "plain"), "security.protocol"},
		{kafkatest.SASL, login("PLAIN", kafkatest.PlainUser, "geheim-wrong"), "Invalid username or password"},
		{kafkatest.SASL, login(kafkatest.SCRAM512, "late", "geheim-late"), "invalid credentials with SASL mechanism SCRAM-SHA-512"},
		{kafkatest.OAuth, login("PLAIN", kafkatest.PlainUser, kafkatest.PlainPassword), "broker's supported mechanisms: OAUTHBEARER"},
	}
	var members []*member
	for _, c := range cases {
		members = append(members, join(t, s.Cluster, db, s.Broker.Addrs[c.listener], c.config))
	}
	for i, c := range cases {
		members[i].refused(t, c.why)
	}
	s.SetPassword(t, kafkatest.SCRAM512, "late", "geheim-late")
	members[len(members)-2].flows(t, s.Cluster)
	for _, m := range members {
		stop(t, m.proc)
	}
}

// issuer gives out tokens that nobody signed, which live for some seconds.
type issuer struct {
	*httptest.Server
	issued, asked atomic.Int64
	away          atomic.Bool
}

const tokenLife = 5 // seconds

func newIssuer(t *testing.T) *issuer {
	i := &issuer{}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asked.Add(1)
		id, secret, _ := r.BasicAuth()
		if i.away.Load() || id != "ferry" || secret != "geheim" {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		now := time.Now().Unix()
		encode := base64.RawURLEncoding.EncodeToString
		claims := fmt.Sprintf(`{"sub":"ferry","iat":%d,"exp":%d,"geheim":"geheim"}`, now, now+tokenLife)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"%s.%s."}`, encode([]byte(`{"alg":"none"}`)), encode([]byte(claims)))
		i.issued.Add(1)
	}))
	t.Cleanup(i.Close)
	return i
}

// tokens: records flow over the lives of several tokens; the broker ends connections whose token has ended. An issuer
// that is away for longer than a token lives is told, and got over without a restart.
func tokens(t *testing.T, s *kafkatest.Secured, db string) {
	issuer := newIssuer(t)
	m := join(t, s.Cluster, db, s.Broker.Addrs[kafkatest.OAuth], kafkaConfig("security.protocol", "sasl_ssl", "ssl.ca.location", s.CA.File,
		"sasl.mechanism", "OAUTHBEARER", "sasl.oauthbearer.method", "oidc", "sasl.oauthbearer.client.id", "ferry",
		"sasl.oauthbearer.client.secret", "geheim", "sasl.oauthbearer.token.endpoint.url", issuer.URL+"/token",
		"sasl.oauthbearer.scope", "kafka", "debug", "all", "reconnect.backoff.max.ms", "1000"))
	for n := int64(1); n <= 3; n++ {
		kafkatest.Wait(t, "a further token", func() bool { return issuer.issued.Load() > n })
		m.flows(t, s.Cluster)
	}
	issuer.away.Store(true)
	m.refused(t, "see whether sasl.oauthbearer.token.endpoint.url gives out tokens")
	if log := m.proc.Log(); strings.Contains(log, base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"ferry"`))[:16]) {
		t.Error("the log has a token")
	}
	issuer.away.Store(false)
	m.flows(t, s.Cluster)
	stop(t, m.proc)
}
