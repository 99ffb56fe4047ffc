package archtest

// rule says what the code of one package may import beside the standard library and internal/message. Tests may import
// more: testkit, and whatever they look at.
type rule struct {
	// internal are packages of Ferry, relative to the module.
	internal []string
	// libraries are third-party modules or packages, with everything below them.
	libraries []string
	// noHTTP forbids net/http.
	noHTTP bool
}

const module = "github.com/ferry-forward/ferry"

// The libraries. Each client has one door: the packages that are allowed it below.
const (
	cobra      = "github.com/spf13/cobra"
	confluent  = "github.com/confluentinc/confluent-kafka-go/v2"
	embeddedPG = "github.com/fergusstrange/embedded-postgres"
	envconfig  = "github.com/kelseyhightower/envconfig"
	franz      = "github.com/twmb/franz-go"
	goleak     = "go.uber.org/goleak"
	gojq       = "github.com/itchyny/gojq"
	goyaml     = "github.com/goccy/go-yaml"
	isatty     = "github.com/mattn/go-isatty"
	pgx        = "github.com/jackc/pgx/v5"
	prometheus = "github.com/prometheus"
	river      = "github.com/riverqueue/river"
	xsync      = "golang.org/x/sync"
	xsys       = "golang.org/x/sys"
	xtime      = "golang.org/x/time"
	zerolog    = "github.com/rs/zerolog"
)

// table has every package of the module, in the order in which a message travels.
var table = map[string]rule{
	// The contract between the tiers.
	"riverjobs":        {libraries: []string{river}, noHTTP: true},
	"internal/message": {noHTTP: true},
	"sql":              {noHTTP: true},

	// Pure steps: no SQL, no queue, no Kafka, no zerolog.
	"internal/forward/jq":      {libraries: []string{gojq}, noHTTP: true},
	"internal/forward/decode":  {noHTTP: true},
	"internal/forward/verdict": {internal: []string{"internal/route", "internal/forward/jq", "internal/forward/decode", "internal/forward/send"}},
	"internal/forward/pacing":  {internal: []string{"internal/route"}, libraries: []string{xsync, xtime}, noHTTP: true},
	"internal/forward/breaker": {noHTTP: true},
	"internal/forward/send":    {internal: []string{"internal/route", "internal/forward/jq", "internal/forward/decode"}},
	"internal/forward": {internal: []string{
		"internal/route", "internal/forward/jq", "internal/forward/decode", "internal/forward/send",
		"internal/forward/verdict", "internal/forward/pacing", "internal/forward/breaker",
	}},
	"internal/route": {
		internal:  []string{"internal/forward/jq", "internal/forward/decode"},
		libraries: []string{goyaml},
	},

	// What a route makes of a record when it is read.
	"internal/intake": {internal: []string{"internal/route", "internal/forward/jq", "internal/forward/decode"}, noHTTP: true},
	// Trying routes out, by the same code.
	"internal/trial": {internal: []string{
		"internal/forward", "internal/forward/jq", "internal/forward/decode", "internal/forward/send", "internal/forward/verdict",
		"internal/intake", "internal/route",
	}},

	"internal/route/genschema": {internal: []string{"internal/route"}},

	// The ingester's side.
	"internal/kafka": {libraries: []string{confluent, xsync}, noHTTP: true},
	"internal/ingest": {
		internal:  []string{"internal/intake", "internal/route"},
		libraries: []string{xsync, xtime}, noHTTP: true,
	},

	// The database.
	"internal/store": {
		internal:  []string{"internal/store/storedb", "internal/migrate", "riverjobs"},
		libraries: []string{pgx, river, xsys}, noHTTP: true,
	},
	"internal/store/storedb": {libraries: []string{pgx}, noHTTP: true},
	"internal/migrate":       {internal: []string{"sql"}, libraries: []string{pgx, river}, noHTTP: true},

	"internal/migrate/schemadump": {internal: []string{"internal/localpg", "internal/migrate"}},
	// It fetches Postgres where there is none.
	"internal/localpg": {libraries: []string{pgx, embeddedPG, xsys}},

	// The forwarder's side.
	"internal/groupcommit": {noHTTP: true},
	"internal/worker": {
		internal:  []string{"internal/forward", "internal/forward/breaker", "internal/groupcommit", "internal/route", "internal/store", "riverjobs"},
		libraries: []string{pgx, river, xsync}, noHTTP: true,
	},

	// What joins them.
	"internal/config":             {libraries: []string{envconfig}},
	"internal/config/settingsdoc": {internal: []string{"internal/config"}},
	"internal/observe":            {libraries: []string{zerolog, prometheus}},
	"internal/admin":              {},
	"internal/app": {
		internal: []string{
			"internal/admin", "internal/config", "internal/migrate", "internal/observe", "internal/route", "internal/store",
		},
		libraries: []string{cobra, isatty},
	},
	"internal/app/ingester": {
		internal: []string{
			"internal/app", "internal/admin", "internal/config", "internal/ingest", "internal/kafka", "internal/observe",
			"internal/route", "internal/store",
		},
		libraries: []string{cobra},
	},
	"internal/app/forwarder": {
		internal: []string{
			"internal/app", "internal/admin", "internal/config", "internal/forward", "internal/forward/breaker", "internal/forward/pacing",
			"internal/kafka", "internal/migrate", "internal/observe",
			"internal/route", "internal/store", "internal/trial", "internal/worker", "riverjobs",
		},
		libraries: []string{cobra, pgx, river},
	},
	"cmd/ingester":  {internal: []string{"internal/app", "internal/app/ingester"}},
	"cmd/forwarder": {internal: []string{"internal/app", "internal/app/forwarder"}},

	// Tests and the demo; never part of a binary.
	"internal/archtest":             {},
	"internal/testkit/pgtest":       {internal: []string{"internal/localpg", "internal/migrate", "sql"}, libraries: []string{pgx}},
	"internal/testkit/kafkatest":    {libraries: []string{franz, goleak}},
	"internal/testkit/proctest":     {},
	"internal/testkit/receivertest": {},
	"internal/testkit/services":     {internal: []string{"internal/localpg", "internal/testkit/kafkatest", "internal/testkit/pgtest"}},
	"internal/demo":                 {internal: []string{"internal/demo/platform", "internal/localpg"}, libraries: []string{franz, pgx}},
	"internal/demo/platform":        {},
	"cmd/demo":                      {internal: []string{"internal/demo"}, libraries: []string{isatty, xsys}},
}

// unlinked are packages that a binary must not contain, however it would come by them.
var unlinked = map[string][]string{
	"cmd/ingester": {
		"internal/forward", "internal/forward/send", "internal/forward/verdict", "internal/forward/pacing",
		"internal/trial", "internal/worker", "internal/groupcommit", "internal/testkit/...", "internal/localpg", "internal/demo/...",
	},
	"cmd/forwarder": {"internal/ingest", "internal/testkit/...", "internal/localpg", "internal/demo/..."},
}
