# make demo   sets up .venv, calibrates and trains an encoder on real text in 11 languages, writes runs/demo (under ten minutes on two cores)
# make demo MODEL=NAME   does so with another encoder: a name on the Hub or a folder
# make test   sets up .venv and passes the checks and the tests
# make test-all  also runs the slow tests: studies, the demo
# make docs   builds the documentation into build/site; any warning is an error
# The other targets: setup, engines (databases, clusters, frameworks and an encoder to test with), lint, format, bench, clean.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.st-xlret-setup
SOURCES := $(wildcard st_xlret training_scripts evaluation benchmarks)

# Tests and documentation need no network; offline, none of them waits for an unreachable one.
test test-all pytest pytest-all docs: export HF_HUB_OFFLINE = 1
export TOKENIZERS_PARALLELISM = false
# Threads that wait actively take the time of the programs beside them.
export OMP_WAIT_POLICY ?= PASSIVE

.DEFAULT_GOAL := help
# Checks, pages and tests run side by side.
MAKEFLAGS += --jobs=2
.PHONY: help setup engines demo test test-all pytest pytest-all lint docs format bench clean

help:
	@sed -n 's/^# make/make/p; s/^# The other/the other/p' Makefile

setup: $(STAMP)

# torch goes first, at its pin: in any other order pip may pull another build of it, with
# several GB of CUDA packages.
$(STAMP): pyproject.toml constraints.txt
	@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --upgrade pip
	$(PY) -m pip install -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(PY) -m pip install -c constraints.txt -e ".[dev]"
	@touch $@

ENGINES := ray[data] qdrant-edge-py langchain-core langchain-huggingface llama-index-core haystack-ai \
	sentence-transformers-haystack \
	$(if $(shell command -v java),pyspark)

engines: $(STAMP)
	for engine in $(ENGINES); do $(PY) -m pip install --quiet -c constraints.txt "$$engine" || echo "not tested: $$engine"; done
	for extra in $$($(PY) -c "from st_xlret.stores.registry import extras; print(*extras())"); do \
	$(PY) -m pip install --quiet -c constraints.txt -e ".[$$extra]" || echo "not tested: $$extra"; done
	test -d $(VENV)/e5 || $(PY) -c "from pathlib import Path; \
	from training_scripts.demo.packaged_encoder import make_packaged_encoder as make; \
	make(Path('$(VENV)/e5'))" || echo "not tested: a real encoder"

demo: $(STAMP)
	$(PY) -m training_scripts.demo.demo $(if $(MODEL),--model "$(MODEL)")

test: lint docs pytest

test-all: lint docs pytest-all

pytest: $(STAMP)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS) -m "not slow"

pytest-all: $(STAMP)
	OMP_NUM_THREADS=1 $(PY) -m pytest -n $(WORKERS)

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy $(SOURCES)

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

format: $(STAMP)
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(STAMP)
	$(PY) -m benchmarks.losses --output runs/losses.json

clean:
	rm -rf runs/demo build dist .pytest_cache .ruff_cache .mypy_cache
	find st_xlret tests training_scripts evaluation benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
