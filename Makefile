# `make` lists the targets. All of them work as root and as an ordinary user, with and without a terminal.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

# A Go that is older than go.mod asks for fetches the right one, unless the environment says otherwise.
export GOTOOLCHAIN ?= auto
# Tools and generated scratch files; removed by `make clean`.
export FERRY_TOOLS ?= $(CURDIR)/.cache/tools

MODULE  := github.com/ferry-forward/ferry
VERSION  = $(shell git describe --tags --always --dirty 2>/dev/null)
COMMIT   = $(shell git rev-parse HEAD 2>/dev/null)
DATE     = $(shell git show -s --format=%cI HEAD 2>/dev/null)
GOBUILD  = go build -trimpath -buildvcs=false -ldflags '-X $(MODULE)/internal/app.version=$(VERSION) \
	-X $(MODULE)/internal/app.commit=$(COMMIT) -X $(MODULE)/internal/app.date=$(DATE)'

# How many packages' tests run at once: two are enough to keep two cores busy with Postgres and Kafka beside them.
TEST_PACKAGES ?= 2
TEST_TIMEOUT  ?= 25m
TEST_FLAGS    ?=
PKG           ?= ./...

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: ## Show Ferry at work: Kafka, Postgres, a flaky platform and the two binaries (DEMO_SECONDS, DEMO_RATE, DEMO_KEEP=1)
	@tools/need build
	@$(GOBUILD) -o bin/ ./cmd/ingester ./cmd/forwarder ./cmd/demo
	@exec bin/demo --bin bin

.PHONY: build
build: ## Build bin/ingester and bin/forwarder
	@tools/need build
	$(GOBUILD) -o bin/ ./cmd/ingester ./cmd/forwarder

.PHONY: test
test: ## Run every test, on a real Postgres and a real Kafka that are started for it (PKG=./internal/store/...)
	@tools/need test
	@go build -buildvcs=false -o .cache/services ./internal/testkit/services
	@exec .cache/services -- go test -race -p $(TEST_PACKAGES) -timeout $(TEST_TIMEOUT) $(TEST_FLAGS) $(PKG)

.PHONY: test-unit
test-unit: ## Run the tests that need neither Postgres nor Kafka
	@tools/need build
	go test -race -timeout 5m $(TEST_FLAGS) $$(go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... \
		| grep -vE 'testkit/(pgtest|kafkatest|services)|internal/localpg|internal/demo|/test/' | cut -d ' ' -f 1)

.PHONY: torture
torture: ## Run the end-to-end tests with outages and waits at their full length
	@tools/need test
	@go build -buildvcs=false -o .cache/services ./internal/testkit/services
	@exec .cache/services -- go test -race -tags torture -count 1 -timeout 60m $(TEST_FLAGS) ./test/...

.PHONY: lint
lint: lint-go lint-generated lint-mod lint-shell lint-compose ## Check style, generated files, go.mod, scripts and compose.yaml

.PHONY: lint-go
lint-go:
	go vet ./...
	go vet -tags torture ./test/...
	tools/run lint run

# Generates everything again in a copy of the tree, and compares.
.PHONY: lint-generated
lint-generated:
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	git ls-files -z -co --exclude-standard | tar --null --ignore-failed-read -cf - -T - | tar -xf - -C "$$copy"; \
	$(MAKE) -C "$$copy" generate; \
	stale=$$(cd "$$copy" && find . -type f | while IFS= read -r f; do cmp -s "$$f" "$(CURDIR)/$$f" || echo "$$f"; done); \
	if [[ -n $$stale ]]; then printf 'not current, run make generate and commit:\n%s\n' "$$stale" >&2; \
		diff -u "$$(head -n 1 <<<"$$stale")" "$$copy/$$(head -n 1 <<<"$$stale")" | head -n 40; exit 1; fi

.PHONY: lint-mod
lint-mod:
	go mod tidy -diff

.PHONY: lint-shell
lint-shell:
	@for f in .ci/run tools/run tools/need deploy/docker/http-ok; do bash -n "$$f"; done

.PHONY: lint-compose
lint-compose:
	tools/run compose --file compose.yaml config --quiet

.PHONY: fmt
fmt: ## Format the code
	tools/run lint fmt

.PHONY: generate
generate: ## Generate again what is generated: query code, schema dump, JSON Schema, settings reference
	go generate ./...

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .cache
