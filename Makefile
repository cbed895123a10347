# See JAX: two commands, `make html` and `make test`. Each sets up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready

.DEFAULT_GOAL := help
.PHONY: help html serve test bench pair lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' Makefile

html: $(READY) ## build both languages into build/html
	@PYTHONPATH=docs $(BIN)/python -m tools.build

serve: $(READY) ## build, serve on localhost:8000, and build again on every change
	@PYTHONPATH=docs $(BIN)/python -m tools.build --serve

test: $(READY) ## check everything: style, spelling, units, doctests, pairs, the build, the site in Chromium
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/typos
	$(BIN)/check-jsonschema --builtin-schema vendor.readthedocs .readthedocs.yaml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/ci.yml
	PYTHONPATH=docs $(BIN)/python -m tools.build
	$(BIN)/pytest

bench: $(READY) ## measure this book's code beside its peers, into bench/results.json
	@$(BIN)/python bench/run.py

pair: $(READY) ## after reading both languages of a page again: make pair PAGE=jit
	@PYTHONPATH=docs $(BIN)/python -m tools.pairs stamp $(PAGE)

lock: $(READY) ## resolve pyproject.toml anew into requirements.lock
	$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --extra training --group docs --group test \
	  pyproject.toml -o requirements.lock

clean: ## remove everything that was built, .venv too
	rm -rf build .venv .pytest_cache .ruff_cache

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("See JAX needs Python 3.11 or newer; set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@echo "   setup │ .venv from requirements.lock (a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e .
	@touch $@
