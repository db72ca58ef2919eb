# `make help` lists the targets. Each one sets up its own virtual environment in
# $(VENV) from a lock file with hashes, as root or as an ordinary user.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARGS ?=
QUERY ?= error

BIN := $(VENV)/bin
# -qq: warnings about this machine's pip settings are not ours to fix; errors still show.
PIP_INSTALL := $(BIN)/python -m pip -qq --disable-pip-version-check install --root-user-action=ignore
INSTALL = echo "$(VENV): installing lock/$(1).txt" >&2 && $(PIP_INSTALL) --require-hashes -r lock/$(1).txt

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help demo test test-fast test-slow faults lint format types coverage schema wheel lock ci \
        bench bench-claim bench-search bench-plots s3-demo clean

# Someone's PYTHONPATH must not decide which packages the tests see.
unexport PYTHONPATH PYTHONHOME

help: ## show the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1	\2/p' Makefile | awk -F '\t' '{ printf "  make %-13s %s\n", $$1, $$2 }'
	@echo
	@echo 'Variables: PYTHON=python3.12 (to build the environment with), VENV=.venv, JOBS=2 (test processes), ARGS="-k name" (for pytest), QUERY=word (for demo)'

# --- environments -----------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "crowmem needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: its venv or ensurepip module is missing." >&2; \
	  echo "On Debian and Ubuntu: apt-get install python3-venv. Or name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)

# A stamp is written last, so an install that was cut short starts again.
# $(call install,lock name): pinned and hash-checked; the build of our own package cannot reach the network.
define install
	@$(call INSTALL,$(1))
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@
endef

$(VENV)/run.stamp: lock/run.txt pyproject.toml | $(BIN)/python
	$(call install,run)

# The lock of the tests contains the one of the demo, version by version.
$(VENV)/test.stamp: lock/test.txt pyproject.toml | $(BIN)/python
	$(call install,test)
	@touch $(VENV)/run.stamp

$(VENV)/check.stamp: lock/check.txt $(VENV)/test.stamp
	@$(call INSTALL,check)
	@touch $@

$(VENV)/bench.stamp: lock/bench.txt $(VENV)/test.stamp
	@$(call INSTALL,bench)
	@touch $@

# --- use --------------------------------------------------------------------

demo: $(VENV)/run.stamp ## import your own agent histories (else the example), list them, search them
	@CROWMEM=$(BIN)/crowmem sh examples/demo.sh $(QUERY)

s3-demo: $(VENV)/test.stamp ## keep images in a real S3 server started on loopback
	$(BIN)/python examples/s3_demo.py

# --- tests ------------------------------------------------------------------

# A whole run must have run every SQL statement on each database; see tests/ledger.py.
test: $(VENV)/test.stamp ## every test, on its own PostgreSQL and S3 server
	@rm -rf $(VENV)/ledger
	$(if $(ARGS),,CROWMEM_TEST_LEDGER=$(VENV)/ledger) $(BIN)/python -m pytest -n $(JOBS) -m "not slow" $(ARGS)

test-fast: $(VENV)/test.stamp ## only what needs no server: SQLite and files
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not postgres and not s3" $(ARGS)

test-slow: $(VENV)/test.stamp ## the long forms: 200 kills, 1,000 schedules, texts of 64 MB
	$(BIN)/python -m pytest -m slow --ignore tests/faults $(ARGS)

faults: $(VENV)/test.stamp ## kills, partitions, full disks: the slow ones too
	$(BIN)/python -m pytest tests/faults -m "slow or not slow" $(ARGS)

coverage: $(VENV)/test.stamp ## every test, and the lines no test ran
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -m "not slow" $(ARGS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

lint: $(VENV)/check.stamp ## style and common mistakes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/check.stamp ## rewrite the Python files in the house's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/check.stamp ## mypy, strict
	$(BIN)/mypy

wheel: $(VENV)/test.stamp ## build wheel and sdist, and use each of them from elsewhere
	rm -rf dist
	$(BIN)/python -m hatchling build
	CROWMEM_TEST_DIST=dist $(BIN)/python -m pytest tests/test_packaging.py -m "slow or not slow"

ci: ## all that a submission must pass
	.ci/run

# --- generated files --------------------------------------------------------

schema: $(VENV)/test.stamp ## write sql/*/schema.sql again from the schema steps
	$(BIN)/python tests/schema_snapshot.py --write

UV := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

lock: $(VENV)/check.stamp ## pin every dependency again, with hashes and without addresses
	$(UV) pyproject.toml --extra mcp --group build --group test -o lock/test.txt
	$(UV) pyproject.toml --group build -c lock/test.txt -o lock/run.txt
	$(UV) --group check -c lock/test.txt -o lock/check.txt
	$(UV) pyproject.toml --extra mcp --extra bench --group build --group test -c lock/test.txt -o lock/bench.txt
	! grep -n '://' lock/*.txt

# --- measurements -----------------------------------------------------------

# The measurements start servers as the tests do, so they find the tests' modules too.
BENCH := PYTHONPATH=.:tests $(BIN)/python bench

SUBJECTS := append load sessions startup writers growth import_ copy_ images tapes search relevance claim

bench: $(VENV)/bench.stamp ## every measurement: a table each, and JSON lines under bench/results
	@mkdir -p bench/results
	@for subject in $(SUBJECTS); do $(BENCH)/$$subject.py --out bench/results/$$subject.jsonl $(ARGS); \
	  case $$? in 0) ran=1 ;; 3) ;; *) failed=1 ;; esac; done; test -n "$$ran" -a -z "$$failed"  # 3: no case of the name asked for

bench-claim: $(VENV)/bench.stamp ## claims a second, against the other queues
	$(BENCH)/claim.py $(ARGS)

bench-search: $(VENV)/bench.stamp ## search times and quality
	$(BENCH)/search.py $(ARGS)
	$(BENCH)/relevance.py $(ARGS)

bench-plots: $(VENV)/bench.stamp ## pictures of what make bench wrote to bench/results
	$(BENCH)/plots.py $(ARGS)

clean: ## remove what make made
	rm -rf $(VENV) .demo dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
