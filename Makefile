# PYTHON is what .venv is made with; it must be 3.11 or newer.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
DEV_STAMP = $(VENV)/.installed-dev
MUTANTS_STAMP = $(VENV)/.installed-mutants

.PHONY: help demo test soak conformance mutants check docs bench clean

help:
	@echo "make demo    the point of it, in under a minute: a stuck stop, simulated and real"
	@echo "make test    all tests"
	@echo "make soak    200 random rounds of real trees under faults, and of signals to perilog helpers; SOAK_ROUNDS=N for others"
	@echo "make conformance  every recorded run of a real Flux against its simulation, a row each"
	@echo "make mutants  small changes of the model's core, each of which tests must notice; minutes; MUTANTS=stopper for a part"
	@echo "make check   style, types, layers, generated files"
	@echo "make docs    bring the generated files up to date"
	@echo "make bench   speed and memory, against peers, into README.md; half an hour, minutes with BENCH=--quick"

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) is not there; install Python 3.11 or newer, or set PYTHON=" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: $(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.11 or newer is needed: set PYTHON=" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
	  { echo "make: $(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "making $(VENV) with $$($(PYTHON) -V 2>&1), once ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(STAMP): pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(DEV_STAMP): pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(STAMP) $@

$(MUTANTS_STAMP): pyproject.toml | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --editable . --group dev --group mutants
	@touch $(STAMP) $(DEV_STAMP) $@

demo: $(STAMP)
	@echo
	@echo "== In virtual time. An administrator stops Flux with systemctl while an epilog is stuck on picl1; its last cleanup"
	@echo "== command, flux queue idle, waits for it. The 45 s of broker.cleanup-timeout pass at once; then the restart:"
	@echo
	@$(BIN)/brokerctl simulate scenarios/stuck-epilog.toml
	@echo
	@echo "== The same stop, hardened: the job says that its epilog was cut off (status 17408, not 0), and picl1 is drained for it;"
	@echo "== the housekeeping that the stop cut off is named, and is run again after the restart;"
	@echo "== nobody gets the node before that:"
	@echo
	@$(BIN)/brokerctl simulate scenarios/stuck-epilog-hardened.toml | sed -n '/^eventlog/,$$p'
	@echo
	@echo "== Where the two stories part:"
	@echo
	@$(BIN)/brokerctl compare scenarios/stuck-epilog.toml --policies flux,hardened || test $$? = 1
	@echo
	@echo "== The stop alone with real processes and signals, as it happens; the timeout is 2 s here, so that you need not wait:"
	@echo
	@$(BIN)/brokerctl test --story --world live -S broker.cleanup-timeout=2s scenarios/stuck-cleanup.toml
	@echo
	@$(BIN)/brokerctl compare --worlds sim,live -S broker.cleanup-timeout=2s scenarios/stuck-cleanup.toml
	@echo
	@echo "== Both worlds ran the same model and held the same expectations. README.md goes on from here."

test: $(DEV_STAMP)
	@$(BIN)/python -m pytest -n auto

SOAK_ROUNDS ?= 200
soak: $(DEV_STAMP)
	@BROKERCTL_SOAK_ROUNDS=$(SOAK_ROUNDS) $(BIN)/python -m pytest -s -k random_rounds tests/worlds/live/test_soak.py
	@BROKERCTL_STOP_SWEEP=100 $(BIN)/python -m pytest -k sweep tests/stop
	@BROKERCTL_SOAK_ROUNDS=$(SOAK_ROUNDS) $(BIN)/python -m pytest -k "random_rounds or every_exit_code or many_jobs" tests/perilog

conformance: $(DEV_STAMP)
	@$(BIN)/python -m tests.conformance

mutants: $(MUTANTS_STAMP)
	@$(BIN)/python -m tests.mutation $(MUTANTS)

check: $(DEV_STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-timing 2>/dev/null | tail -n 5
	@$(BIN)/lint-imports >/dev/null
	@$(BIN)/python -m tests.generated --check

docs: $(DEV_STAMP)
	@$(BIN)/python -m tests.generated

bench: $(DEV_STAMP)
	@$(BIN)/python -m tests.bench --update README.md $(BENCH)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
