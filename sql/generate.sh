#!/usr/bin/env bash
# Writes schema.sql and river.sql from the migrations, and internal/store/storedb from them and the queries.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go run ./internal/migrate/schemadump sql
tools/run sqlc generate -f tools/sqlc/sqlc.yaml
gofmt -w internal/store/storedb
