SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The examples are a separate module, so that users of the library do not get their dependencies.
MODULES := . $(patsubst %/go.mod,%,$(wildcard examples/go.mod))
each = for module in $(MODULES); do (cd "$$module" && $(1)); done

# A number of inputs. With a duration, a fuzz test that finds nothing may fail with "context deadline
# exceeded" before Go 1.27: https://go.dev/issue/75804
FUZZTIME ?= 10000x
ROUNDS ?= 200
VULNDB ?= https://vuln.go.dev
BENCHTIME ?= 2s
SEED ?= 1
SECOND ?=
E2E ?=
KUBECTL ?= kubectl

.PHONY: help
help: ## Print this help.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Compile all packages, and build the program into bin/.
	@$(call each,go build ./...)
	go build -trimpath -o bin/kinproc .

# The tests of these packages run the program in hundreds of processes. With the race detector, each
# process takes four times as long. Tests of other packages run the servers in process, with it.
PROGRAM_TESTS := github.com/kinproc/kinproc github.com/kinproc/kinproc/server/cli

# The recordings are replayed one request after the other, which takes three times as long with it.
UNRACED_TESTS := $(PROGRAM_TESTS) github.com/kinproc/kinproc/conformance

# RACE is empty or -race. make lint does the vetting: go test would analyze all dependencies once more
# for it, which takes minutes.
RACE ?=

# Without this, the race detector sleeps for a second at the end of each package.
export GORACE ?= atexit_sleep_ms=0

# Two parts run at once, because each of them often waits for servers and programs. More would leave no
# processor idle either, but starve tests that have a server's limits of time.
.PHONY: test
test: ## Run all tests. RACE=-race detects races, except in the program and the recordings.
	@$(MAKE) --no-print-directory -j 2 --output-sync=target test-packages test-unraced test-examples \
		test-tools

.PHONY: test-packages
test-packages:
	@go test $(RACE) -vet=off -timeout 30m $$(go list ./... | grep -vxF $(UNRACED_TESTS:%=-e %))

# On a busy machine, the scripts of server/cli take half an hour.
.PHONY: test-unraced
test-unraced:
	@go test -vet=off -timeout 60m $(UNRACED_TESTS)

.PHONY: test-examples
test-examples:
	@go test -C examples $(RACE) -vet=off -timeout 45m ./...

.PHONY: test-tools
test-tools:
	@go test -C tools -vet=off ./...

.PHONY: race
race: ## Run all tests with RACE=-race.
	@$(MAKE) --no-print-directory test RACE=-race

# The packages that test the whole server from outside.
SERVER_TESTS := ./server/internal/apitest ./server/internal/controllers/looptest
BASE ?= main

.PHONY: check
check: bin/lint ## Lint and test what differs from branch BASE (main), in this module.
	@base=$$(git merge-base HEAD $(BASE)); \
	files=$$({ git diff --name-only --diff-filter=d "$$base"; git ls-files -o --exclude-standard; } | \
		grep '\.go$$' | grep -v '^examples/') || { echo 'no Go file has changed'; exit 0; }; \
	unformatted=$$(gofmt -l $$files); \
	[ -z "$$unformatted" ] || { printf 'gofmt would change:\n%s\n' "$$unformatted" >&2; exit 1; }; \
	changed=$$(dirname $$files | sort -u | xargs printf './%s\n' | xargs go list); \
	bin/lint $$changed & lint=$$!; \
	tests=$$(grep -qv '_test\.go$$' <<<"$$files" && go list $(SERVER_TESTS) || true); \
	go test -vet=off -skip 'TestDocuments|TestTour' . \
		$$(printf '%s\n' $$tests $$changed | sort -u | grep -vxF $(PROGRAM_TESTS:%=-e %)); \
	wait $$lint

# The linter has a module of its own, to keep its dependencies out of this one.
.PHONY: bin/lint
bin/lint:
	@go build -C tools -o $(CURDIR)/$@ ./lint

# The linter uses what RACE compiles. What kinproc writes for new projects is checked too.
.PHONY: lint
lint: bin/lint ## Run gofmt, go mod tidy, the analyzers of go vet, and staticcheck, and fail on any finding.
	@files=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); \
	[ -z "$$files" ] || { printf 'gofmt would change:\n%s\n' "$$files" >&2; exit 1; }
	@$(call each,go mod tidy -diff)
	@cd tools && go mod tidy -diff
	@$(call each,GOFLAGS="$$(go env GOFLAGS) $(RACE)" $(CURDIR)/bin/lint ./...)
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; go build -o "$$dir/kinproc" .; cd "$$dir"; \
	./kinproc operator init greeter --kind=Greeting --kinproc-replace=$(CURDIR) >/dev/null; \
	./kinproc extension init rules --module=example.com/rules --group=net.example.com --kind=Rule \
		--kinproc-replace=$(CURDIR) >/dev/null; \
	for project in greeter rules; do \
		(cd $$project; GOFLAGS="$$(go env GOFLAGS) -mod=mod $(RACE)" $(CURDIR)/bin/lint ./...); \
	done

# govulncheck exits with 3 if it finds something. An unreachable database is not a finding.
.PHONY: vulncheck
vulncheck: ## Fail on known vulnerabilities in code that is called, unless VULNDB is unreachable.
	@tools=$(CURDIR)/tools/go.mod; said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	$(call each,go tool -modfile="$$tools" govulncheck -db $(VULNDB) ./... 2>"$$said" || { code=$$?; cat "$$said" >&2; \
		grep -q 'fetching vulnerabilities' "$$said" || exit $$code; \
		echo "vulncheck: $$module was not checked: $(VULNDB) cannot be reached" >&2; })

.PHONY: bench
bench: ## Print the times of start, first objects and stop, requests per second, and memory.
	go test -run '^$$' -bench . -benchtime $(BENCHTIME) -timeout 2h ./embed ./server/...

.PHONY: fuzz
fuzz: ## Run every fuzz test with FUZZTIME (10000x) inputs.
	@grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		grep -oE '^func Fuzz[A-Za-z0-9_]+' "$$file" | cut -d' ' -f2 | while read -r name; do \
			go test -vet=off -run '^$$' -fuzz "^$$name$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")"; \
		done; \
	done

.PHONY: attack
attack: ## Repeat attacks that once succeeded: on loopback, with bounded time and memory.
	@$(call each,GOMEMLIMIT=2GiB go test -vet=off -timeout 10m -run '^TestAttack' $$(grep -rlE \
		'^func TestAttack' --include='*_test.go' . | xargs -n 1 dirname | sort -u | grep -v '^./examples'))

# What make soak does for about an hour on two cores.
KILLS ?= 10000
RESETS ?= 500
UPDATES ?= 20000
CUT ?= 30s
CYCLES ?= 500
CROWD ?= 100

.PHONY: soak
soak: ## For an hour: KILLS, RESETS, UPDATES, troubles of replicas for CUT each, CYCLES, a CROWD.
	go test -v -vet=off -count=1 -timeout 4h -run TestAcknowledgedWritesSurviveKill ./server/cli -rounds $(KILLS)
	go test -v -vet=off -count=1 -timeout 1h -run TestKilledDuringAReset ./server/cli -rounds $(RESETS)
	go test -v -vet=off -count=1 -timeout 2h -run TestUpdatesLeaveRoom ./server/cli -updates $(UPDATES)
	go test -C examples -v -vet=off -count=1 -timeout 1h -run TestReplicasInTrouble . -cut $(CUT)
	go test -v -vet=off -count=1 -timeout 1h -run TestCyclesLeaveNothing ./server/servertest -cycles $(CYCLES)
	go test -v -vet=off -count=1 -timeout 1h -run TestCrowd ./server/servertest -crowd $(CROWD)

.PHONY: conformance
conformance: ## Compare responses with those recorded from a real kube-apiserver.
	go test -v -run TestAnswersAsKubeAPIServer ./conformance

SERVER ?=

.PHONY: record
record: ## Record the responses anew from kubeconfig SERVER's kube-apiserver: see docs/upgrading.md.
	@[ -n "$(SERVER)" ] || { echo 'SERVER must be a kubeconfig' >&2; exit 2; }
	go test -v -vet=off -count=1 -timeout 1h -run '^TestAnswersAsKubeAPIServer$$' ./conformance \
		-record "$(abspath $(SERVER))"

.PHONY: conformance-fuzz
conformance-fuzz: ## Compare ROUNDS (200) odd requests by SEED (1) with kubeconfig SECOND's server.
	go test -v -timeout 24h -run TestAnswersOddRequestsAsAnother ./conformance -rounds $(ROUNDS) -seed $(SEED) -second "$(abspath $(SECOND))"

.PHONY: e2e
e2e: ## Run the specs of Kubernetes' program E2E=path/to/e2e.test that pass here, with KUBECTL.
	go test -v -timeout 4h -run TestPassesEndToEndSpecs ./conformance -e2e "$(abspath $(E2E))" -kubectl "$$(command -v "$(KUBECTL)")"

.PHONY: cross
cross: ## Compile for all platforms.
	@for platform in {linux,darwin,windows}/{amd64,arm64}; do \
		echo "$$platform"; CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build ./...; \
	done

KUBERNETES ?=
FROM ?=

.PHONY: upgrade
upgrade: ## Move to KUBERNETES (0.38.0), and list what to decide. With FROM (0.37.2), list only.
	@go build -C tools -o $(CURDIR)/bin/upgrade ./upgrade
	@cd tools && $(CURDIR)/bin/upgrade $(FROM:%=-from %) $(KUBERNETES)

# The programs that make a release. They are no requirements of a module here.
GORELEASER := go run github.com/goreleaser/goreleaser/v2@v2.15.1
export CYCLONEDX := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0

.PHONY: release-check
release-check: ## Check the configuration of releases.
	$(GORELEASER) check

.PHONY: release-snapshot
release-snapshot: ## Build the files of a release, but for the image, into dist/.
	$(GORELEASER) release --snapshot --clean --skip docker

.PHONY: release
release: ## Publish the tagged commit: archives, checksums, SBOMs and an image.
	$(GORELEASER) release --clean

# The versions that a server can serve. Payloads (admission, imagepolicy) and removed versions are
# left out.
OPENAPI_PACKAGES := $(addprefix k8s.io/api/, \
	admissionregistration/v1 admissionregistration/v1alpha1 admissionregistration/v1beta1 \
	apiserverinternal/v1alpha1 \
	apps/v1 \
	authentication/v1 \
	authorization/v1 \
	autoscaling/v1 autoscaling/v2 \
	batch/v1 \
	certificates/v1 certificates/v1beta1 \
	coordination/v1 coordination/v1alpha2 coordination/v1beta1 \
	core/v1 \
	discovery/v1 \
	events/v1 \
	flowcontrol/v1 \
	lifecycle/v1alpha1 \
	networking/v1 networking/v1beta1 \
	node/v1 \
	policy/v1 \
	rbac/v1 \
	resource/v1 resource/v1alpha3 resource/v1beta1 resource/v1beta2 \
	scheduling/v1 scheduling/v1alpha3 scheduling/v1beta1 \
	storage/v1 storage/v1beta1 \
	storagemigration/v1 storagemigration/v1beta1) \
	k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 \
	k8s.io/kube-aggregator/pkg/apis/apiregistration/v1 \
	$(addprefix k8s.io/apimachinery/pkg/, api/resource apis/meta/v1 runtime util/intstr version)

OPENAPI := chain/core/internal/definitions/zz_generated.openapi.go

# openapi-gen reports violations of API naming rules in k8s.io/api, which are not ours to fix. Every
# package is marked read-only, because openapi-gen would otherwise write model names into the module
# cache if that is writable.
.PHONY: generate
generate: ## Regenerate the generated files.
	@go tool openapi-gen --output-pkg github.com/kinproc/kinproc/chain/core/internal/definitions \
		--output-dir $(dir $(OPENAPI)) --output-file $(notdir $(OPENAPI)) --report-filename /dev/null \
		--output-model-name-file zz_generated.model_name.go $(addprefix --readonly-pkg=,$(OPENAPI_PACKAGES)) \
		$(OPENAPI_PACKAGES)
	@go test -vet=off -count=1 -run '^TestSurface$$' . -update

.PHONY: verify
verify: ## Fail if a generated file differs from what make generate writes.
	@before=$$(mktemp -d); trap 'rm -rf "$$before"' EXIT; cp $(OPENAPI) docs/surface.txt "$$before"; \
	$(MAKE) --no-print-directory generate; \
	for file in $(OPENAPI) docs/surface.txt; do \
		cmp -s "$$before/$${file##*/}" $$file || { echo "$$file was out of date: commit what make generate wrote" >&2; exit 1; }; \
	done
