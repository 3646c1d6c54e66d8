# Everything a developer or CI needs; python3 (>= 3.11) and make are the only prerequisites.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint types imports unit bench bench-suite histories differential fuzz lock clean profile sbom

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q app extenders
	@touch $@

demo: $(STAMP) ## an embedded cluster, a sample extender and the scheduler in one go
	@$(BIN)/aiokube-scheduler demo

test: lint types imports unit ## everything CI checks

lint: $(STAMP) ## style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

imports: $(STAMP) ## the wall and the layers
	$(BIN)/lint-imports

# The Helm client, for the tests of the chart: built once, which takes some minutes. Without Go these tests are skipped, in CI
# never.
HELM_VERSION := v3.22.0
HELM := $(VENV)/.helm-$(HELM_VERSION)
HELM_DEFAULTS := -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36
$(HELM): | $(STAMP)
	GOBIN=$(abspath $(BIN)) GOFLAGS= CGO_ENABLED=0 go install -ldflags='-s -w $(HELM_DEFAULTS)' helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	@touch $@

.PHONY: helm
helm: $(HELM) ## the Helm client, built with the Go toolchain

unit: $(STAMP) $(if $(CI)$(shell command -v go),$(HELM)) ## all tests, in parallel
	$(BIN)/pytest -q -n 2 --dist worksteal

BENCH ?=
bench: $(STAMP) ## throughput, CPU and memory; BENCH='--nodes 5000 --pods 2000 ...'
	@$(BIN)/python -m tests.bench $(BENCH)

SUITE ?=
bench-suite: $(STAMP) ## the workloads of tests/bench/suite.yaml in one table; SUITE='--rounds 3 --compare ...'
	@$(BIN)/python -m tests.bench.suite $(SUITE)

OPENB ?= --data ../shared/traces/openb
.PHONY: bench-openb
bench-openb: $(STAMP) ## policies for shared GPUs on the openb trace (docs/gpu.md); OPENB='--data DIR --policy FGD ...'
	@$(BIN)/python -m tests.bench.openb $(OPENB)

HISTORIES ?= 100000
histories: $(STAMP) ## simulated histories in which everything fails, HISTORIES=100000 of them (docs/testing.md)
	@$(BIN)/python -m tests.histories --histories $(HISTORIES) --table

SEQUENCES ?= 10000
differential: $(STAMP) ## a long-lived state against new ones, in SEQUENCES=10000 random sequences (docs/testing.md)
	@$(BIN)/python -m tests.differential --sequences $(SEQUENCES)

.PHONY: figures
figures: $(STAMP) ## how long the way of a pod is and what the code consists of; bounds: tests/figures/bounds.json
	@$(BIN)/python -m tests.figures

FUZZ_SECONDS ?= 600
FUZZ ?=
fuzz: $(STAMP) ## objects that nobody should send, for FUZZ_SECONDS=600; FUZZ='--seed 1 ...'
	@$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ)

HOURS ?= 2
SOAK ?=
.PHONY: soak
soak: $(STAMP) ## churn on 5000 nodes for HOURS=2, which fails if the scheduler grows; SOAK='--real ...'
	@$(BIN)/python -m tests.whole.soak --hours $(HOURS) $(SOAK)

SBOM := $(VENV)/.sbom
DIST ?= dist
sbom: $(STAMP) ## what the image contains, as CycloneDX: dist/aiokube-scheduler.cdx.json
	@mkdir -p $(DIST)
	@test -x $(SBOM)/bin/cyclonedx-py || ($(PYTHON) -m venv $(SBOM) && \
	  $(SBOM)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-sbom.lock)
	$(SBOM)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o $(DIST)/aiokube-scheduler.cdx.json requirements.lock

PICTURES := build/pictures
.PHONY: pictures
pictures: $(STAMP) ## pictures of the page for the documentation site, made by its tests in Chromium: build/pictures
	@mkdir -p $(PICTURES)
	DASHBOARD_PICTURES=$(abspath $(PICTURES)) $(BIN)/pytest -q tests/whole/test_dashboard.py -k 'glance or keyboard or simulation'

DOCS := $(VENV)/.docs
.PHONY: docs
docs: ## the documentation site, links checked: build/site, with pictures if they are made; REPOSITORY_URL=... for links to files
	@test -x $(DOCS)/bin/mkdocs || ($(PYTHON) -m venv $(DOCS) && \
	  $(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

REGISTRY ?= registry.example.com/aiokube
.PHONY: release
release: $(HELM) ## the files of a release, and the commands that publish them; REGISTRY=... (release.py --help)
	PATH=$(abspath $(BIN)):$$PATH $(BIN)/python release.py --registry $(REGISTRY)

PROFILE ?= --nodes 1000 --pods 2000
profile: $(STAMP) ## where the scheduler spends its CPU; PROFILE='--nodes 5000 ...' as for bench
	@$(BIN)/python -m tests.bench $(PROFILE) --scheduler \
	  "$(abspath $(BIN))/python -m cProfile -o .profile -m app run --config {config} --leader-elect=false --secure-port=0"
	@$(BIN)/python -c "import pstats; pstats.Stats('.profile').sort_stats('tottime').print_stats(40)"

lock: ## refresh the lock files from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade pyproject.toml -o requirements.lock -q
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --upgrade --group dev pyproject.toml -o requirements-dev.lock -q
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --constraint requirements-dev.lock --group build -o requirements-build.lock -q
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --group sbom -o requirements-sbom.lock -q
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --group docs -o requirements-docs.lock -q

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache fuzz-found
