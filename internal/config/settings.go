package config

import "time"

// RouteFile is what is read where nothing but the route file matters.
type RouteFile struct {
	// Routes is the path of the route file. Default routes.yaml, in the working directory.
	Routes string `split_words:"true" default:"routes.yaml" desc:"Path of the route file, relative to the working directory."`
}

// Common is what both binaries read.
type Common struct {
	// DatabaseURL is where Ferry's Postgres is, as URL or as key=value pairs; DATABASE_URL is read where
	// FERRY_DATABASE_URL is not set. It may hold a password: print it with String only.
	DatabaseURL DatabaseURL `envconfig:"DATABASE_URL" required:"true" desc:"Postgres, as URL (postgres://user:password@host:5432/database) or as key=value pairs. Where it is not set, DATABASE_URL is read. The password is never printed."`

	RouteFile

	// PollOnly makes both binaries do without LISTEN/NOTIFY and without startup parameters. Default false.
	PollOnly bool `split_words:"true" default:"false" desc:"Work without LISTEN/NOTIFY and without startup parameters: behind PgBouncer in transaction mode, or on YugabyteDB. Jobs are then polled for every 50 ms."`

	// LogLevel is the lowest level that is logged. Default info.
	LogLevel string `split_words:"true" default:"info" oneof:"debug,info,warn,error" desc:"Lowest level that is logged. At info nothing is logged per message while all is well."`

	// LogFormat is the form of a log line. Default json.
	LogFormat string `split_words:"true" default:"json" oneof:"json,console" desc:"Form of the log on stderr: one JSON object a line, or lines for people."`
}

// Ingester is what the ingester reads.
type Ingester struct {
	Common

	// KafkaBrokers are the addresses to find the cluster by, host:port each. Required.
	KafkaBrokers []string `split_words:"true" required:"true" desc:"Kafka brokers to find the cluster by, host:port, comma-separated. One that answers is enough."`

	// KafkaGroup is the consumer group, and the name of its positions in the database. Default ferry.
	KafkaGroup string `split_words:"true" default:"ferry" desc:"Consumer group. Positions in the database are kept by this name: another group reads everything again."`

	// KafkaConfig holds further librdkafka properties. Its values may be secret: print it with String only.
	KafkaConfig KafkaConfig `split_words:"true" desc:"Further librdkafka properties, k=v,k=v (a comma inside a value is written \\,); without any = it is the path of a file with one k=v a line. Properties that would break a promise of Ferry are refused by name. Values are never printed."`

	// BatchSize is how many records one transaction stores at most. Default 500, 1 to 10000.
	BatchSize int `split_words:"true" default:"500" min:"1" max:"10000" desc:"Records that one transaction stores at most."`

	// BatchBytes is how many bytes of records one transaction stores at most; a larger record goes alone. Default
	// 8 MiB, 1 KiB to 256 MiB.
	BatchBytes Bytes `split_words:"true" default:"8MiB" min:"1KiB" max:"256MiB" desc:"Bytes of records that one transaction stores at most (a plain number, or with KiB, MiB or GiB). A record that is larger goes alone."`

	// BatchLinger is how long a batch that is not full may stay open. Default 50ms, 0 to 10s.
	BatchLinger time.Duration `split_words:"true" default:"50ms" min:"0s" max:"10s" desc:"How long a batch that is not full may stay open. A batch closes at once when its writer is free."`

	// Writers is how many transactions run side by side. Default 2, 1 to 32.
	Writers int `split_words:"true" default:"2" min:"1" max:"32" desc:"Transactions that run side by side. A partition always stays on the same one."`

	// BufferBytes bounds the records that were read and are not stored yet. Default 32 MiB, at least BatchBytes.
	BufferBytes Bytes `split_words:"true" default:"32MiB" min:"1MiB" max:"64GiB" desc:"Bytes of records in memory that are not stored yet; at this bound partitions are paused. At least FERRY_BATCH_BYTES."`

	// DatabaseMaxConns bounds the connection pool. Default 0: FERRY_WRITERS + 2.
	DatabaseMaxConns int `split_words:"true" default:"0" min:"0" max:"1000" desc:"Database connections at most. 0: FERRY_WRITERS + 2."`

	// AdminAddr is where probes and metrics are served. Default 127.0.0.1:9101.
	AdminAddr string `split_words:"true" default:"127.0.0.1:9101" desc:"host:port of probes and metrics. 0.0.0.0:9101 serves them to other hosts; port 0 takes a free one."`

	// ShutdownTimeout bounds the whole stop after SIGTERM. Default 10s, 1s to 10m.
	ShutdownTimeout time.Duration `split_words:"true" default:"10s" min:"1s" max:"10m" desc:"Time for the whole stop after SIGTERM: open batches are stored, offsets committed, the group left. What is not stored by then is read again at the next start."`
}

// Forwarder is what the forwarder reads.
type Forwarder struct {
	Common

	// KafkaBrokers are the addresses to find the cluster of dead letters by. Default: none.
	KafkaBrokers []string `split_words:"true" desc:"Kafka brokers for dead letters, host:port, comma-separated. Required where a route that this forwarder works has dead_letter. A forwarder that has them writes the dead letters of all routes of its file."`

	// KafkaConfig holds further librdkafka properties. Its values may be secret: print it with String only.
	KafkaConfig KafkaConfig `split_words:"true" desc:"Further librdkafka properties, as the ingester reads them; those that only consumers have are left out. Values are never printed."`

	// RouteNames are the routes that this forwarder works. Default: all of the file.
	RouteNames []string `split_words:"true" desc:"Routes that this forwarder works, comma-separated names of the route file. Empty: all. Others must be worked by another forwarder."`

	// CompletedJobRetention is how long River keeps completed jobs. Default 15m, 1m to 720h.
	CompletedJobRetention time.Duration `split_words:"true" default:"15m" min:"1m" max:"720h" desc:"How long completed jobs are kept in River's table. Messages have their own retention, in the route file."`

	// DatabaseMaxConns bounds the connection pool. Default 10, 4 to 1000.
	DatabaseMaxConns int `split_words:"true" default:"10" min:"4" max:"1000" desc:"Database connections at most. No connection is held while a request is in flight, so that a few are enough."`

	// AdminAddr is where probes and metrics are served. Default 127.0.0.1:9102.
	AdminAddr string `split_words:"true" default:"127.0.0.1:9102" desc:"host:port of probes and metrics. 0.0.0.0:9102 serves them to other hosts; port 0 takes a free one."`

	// ShutdownTimeout is what requests in flight get after SIGTERM. Default 20s, 1s to 10m.
	ShutdownTimeout time.Duration `split_words:"true" default:"20s" min:"1s" max:"10m" desc:"Time that requests in flight get after SIGTERM to end and to be recorded. Then the rest is given back, without an attempt counted. Keep it 10 s below the orchestrator's grace period."`
}
