# The developer's verbs. Each builds .venv from the pins first when it has to, so a fresh clone needs only
# Python 3.11 or newer, pip, git and make.
.DEFAULT_GOAL := help
.PHONY: help venv moved run phone crash quick test interop chaos soak check lint imports format types bench conformance docs pictures dist clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Programs in .venv name the folder that they were made in: a clone that was moved or copied builds them anew.
MOVED := $(filter-out $(CURDIR),$(shell cat $(READY) 2>/dev/null))
# The smallest machine we run on has two cores, and half of a run is waiting: for a process, a commit or a clock.
PYTEST_ARGS ?= -q -n 4 --dist loadgroup
SOURCES := src tests bench tools
# Every file with a test that does more when it is asked to.
LONG_FORMS = $(shell grep -rl --include='test_*.py' -e 'getoption("--long")' tests)

help: ## List these verbs
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(READY) ## Build .venv from the pinned versions

$(READY): requirements-dev.txt pyproject.toml $(if $(MOVED),moved)
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "make: Hermes needs Python 3.11 or newer; say which with make PYTHON=/path/to/python" >&2; exit 1; }
	@echo "Building $(VENV) (first time, or the pins or the folder changed; it takes a minute or so)"
	@"$(PYTHON)" -m venv $(if $(MOVED),--clear) $(VENV)
	@echo "  fetching $$(grep -c '^[a-zA-Z]' requirements-dev.txt) packages"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check -r requirements-dev.txt || \
	  { echo "make: pip could not fetch the packages; it needs PyPI, or a mirror that its configuration names" >&2; exit 1; }
	@echo "  installing Hermes"
	@$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@echo "$(CURDIR)" > $@

moved:

run: $(READY) ## Talk to Hermes on a throw-away home in ./.demo
	@$(BIN)/hermes demo

phone: $(READY) ## A pretend phone for the running demo (AS=mallory: somebody else's)
	@$(BIN)/python -m hermes_testing.phone --as "$(if $(filter default undefined,$(origin AS)),ada,$(AS))"

crash: $(READY) ## Kill the running demo's gateway with -9, and see that nothing is lost or doubled
	@$(BIN)/hermes demo crash

quick: $(READY) ## The unit tests on SQLite, in a minute
	@$(BIN)/python -m pytest $(PYTEST_ARGS) --quick

test: lint types ## Lint, import direction, types, all our tests on SQLite and PostgreSQL
	@$(BIN)/python -m pytest $(PYTEST_ARGS) --ignore tests/interop

interop: $(READY) ## Our servers and fakes beside programs of other people (OpenAI's client, python-telegram-bot)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) tests/interop

bench: $(READY) ## Measure, each figure beside its floor (ARGS="search" picks one)
	@$(BIN)/python -m bench $(ARGS)

conformance: $(READY) ## What other people's clients, engines and tokenizers say; fetches them into .conformance (ARGS="api" picks one)
	@$(BIN)/python -m tools.conformance $(ARGS)

chaos: $(READY) ## Every sweep in full, then a gateway killed 200 times under load, then without a store (two or three hours; SEED=1 repeats a run)
	@$(BIN)/python -m pytest $(PYTEST_ARGS) --long $(if $(SEED),--seed $(SEED)) tests/chaos tests/multiprocess $(LONG_FORMS)
	@$(BIN)/python -m tests.support.storm --kills 200 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.support.storm --kills 10 --away-seconds 600 $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.support.storm --kills 10 --away-seconds 600 --postgresql $(if $(SEED),--seed $(SEED))

soak: $(READY) ## A gateway under load for 20 minutes: what it needs must not grow (ARGS="--minutes 5")
	@$(BIN)/python -m bench.soak $(ARGS)

lint: $(READY) imports ## Check style and import direction
	@$(BIN)/ruff check --quiet $(SOURCES)
	@said=$$($(BIN)/ruff format --check $(SOURCES) 2>&1) || { echo "$$said"; echo "make format fixes it" >&2; exit 1; }

imports: $(READY) ## Check that imports point one way
	@said=$$($(BIN)/lint-imports --no-logo --no-cache) || { echo "$$said"; exit 1; }

format: $(READY) ## Rewrite the sources in our format
	@$(BIN)/ruff check --quiet --fix $(SOURCES)
	@$(BIN)/ruff format --quiet $(SOURCES)

types: $(READY) ## Check types, strictly, on src/
	@$(BIN)/mypy --no-error-summary

docs: $(READY) ## Regenerate the pages that are made from code
	@$(BIN)/python -m tools.limits_page > docs/operators/limits.md
	@$(BIN)/python tools/tools_page.py > docs/users/tools.md
	@$(BIN)/python -m tools.authorisation_page > docs/operators/authorisation.md
	@$(BIN)/python -m tools.rpc_page > docs/contributors/rpc.md
	@$(BIN)/python -m tools.commands_page > docs/users/commands.md
	@$(BIN)/python -m tools.settings_page > docs/operators/config-reference.md

pictures: $(READY) ## Record the pictures of the docs anew: the crash, and the terminal window
	@$(BIN)/python -m tools.crash_picture docs/images/crash.svg
	@$(BIN)/python -m tools.window_pictures docs/users/images

dist: $(READY) ## Build the wheel and the source archive of the committed tree into dist/
	@$(BIN)/python -m tools.release

clean: ## Remove everything that make built
	@rm -rf $(VENV) .venv-newest .demo .bench .conformance build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf src/*.egg-info
