// Package sql holds Ferry's schema: the numbered migrations, the queries that sqlc turns into internal/store/storedb,
// and dumps of what the migrations make (schema.sql, and River's part in river.sql), which sqlc reads.
package sql

import "embed"

//go:generate ./generate.sh

// Migrations holds migrations/NNNN_name.up.sql and .down.sql.
//
//go:embed migrations/*.sql
var Migrations embed.FS

// Versions makes the table in which the migrations record themselves.
//
//go:embed versions.sql
var Versions string
