# See JAX: two commands, `make html` and `make test`. Each sets up .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
TOOLS := PYTHONPATH=docs $(BIN)/python -m
DOCS := .venv/ready-docs
TEST := .venv/ready-test
AREAS := $(sort $(patsubst tests/%/,%,$(dir $(wildcard tests/*/test_*.py))))
UNITS := -m "not site and not browser and not build" tests/build tests/pages docs
PYTEST := $(BIN)/pytest -q -n $(or $(WORKERS),logical --maxprocesses 4) --dist loadfile
# Types are those of the JAX that the book has; another Python may have another one.
BOOK_PYTHON := $(shell cat .python-version)
REACHED = reached=$$($(TOOLS) book.author.reached $(CHANGED)) && \
  if [ -n "$$reached" ]; then $(PYTEST) $$reached; else echo "no test reads what has changed"; fi

.DEFAULT_GOAL := help
.NOTPARALLEL:
unexport PYTHONDONTWRITEBYTECODE # every page and test starts a Python: 1 s with its bytecode, 4 s without
.PHONY: help html serve zip pdf check test notebooks inventories linkcheck test-slurm screenshot audit audit-packages bench pair lock clean accept browser setup page test-elsewhere $(AREAS:%=test-%)

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s %s\n", $$1, $$2}' Makefile
	@echo "make test-AREA      one folder of tests: $(AREAS)"

html: $(DOCS) ## build both languages into build/html
	@$(TOOLS) book.build

serve: $(DOCS) ## build, serve on localhost:8000, and build again on every change
	@$(TOOLS) book.build --serve

zip: ## the site to open from the disk: build/htmlzip
pdf: ## the site as one PDF a language, printed by Chromium: build/pdf
zip pdf: $(TEST) browser html
	@$(TOOLS) book.export.offline $@

.PHONY: lint
lint: $(TEST)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/typos
	@if $(BIN)/python -V | grep -qF " $(BOOK_PYTHON)."; then $(BIN)/pyrefly check --summary=none; fi
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.readthedocs .readthedocs.yaml
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(TOOLS) book.author.pairs check

check: lint ## less than a minute: style, types, prose and unit tests; PAGE=jit all that looks at one page
	@$(if $(PAGE),SEEJAX_PAGE=$(PAGE) $(PYTEST) tests/pages,$(PYTEST) $(UNITS))

test: lint browser $(if $(CHANGED),,html) ## everything; CHANGED=1 what the last edits reach, CHANGED=main a branch
	@$(if $(CHANGED),$(REACHED),$(PYTEST))

$(AREAS:%=test-%): test-%: $(TEST) browser
	@$(PYTEST) tests/$*

test-elsewhere: ## build and test as other machines would, each from a fresh clone; ROW="sse4 one-core" just those
	@PYTHONPATH=docs:examples $(PYTHON) -m book.author.elsewhere $(ROW)

page: $(TEST) ## lay the places of a new page: NAME=scan AFTER=control-flow
	@$(TOOLS) book.author.new_page "$(NAME)" "$(AFTER)"

accept: $(TEST) html ## after reading what the pages show now: take it for what they have to show
	@$(BIN)/pytest -q tests/pages/test_outputs.py --snapshot-update

notebooks: $(TEST) html ## run every notebook top to bottom, with the package as it is published
	@$(TOOLS) book.author.run_notebooks

test-slurm: $(TEST) ## train under a real Slurm of one node, kill, resume (root; Debian or Ubuntu)
	@$(BIN)/python tests/slurm/run_under_slurm.py

screenshot: $(TEST) browser html ## take README's picture of the built front page
	@$(TOOLS) book.author.screenshot

audit: $(TEST) browser html ## Lighthouse and afdocs on every page, against bounds (needs Node); PAGE="jit vmap" just those
	@$(TOOLS) book.author.audit $(PAGE)

audit-packages: $(TEST) ## look the locked packages up among known vulnerabilities (needs a network)
	@$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements.lock
	@$(BIN)/pip-audit --strict --disable-pip --require-hashes -r requirements-test.lock

bench: $(TEST) ## measure this book's code beside its peers; ONLY="mlp cnn" just those anew
	@$(BIN)/python bench/run.py $(if $(ONLY),--only $(ONLY))
	@$(if $(ONLY),,$(BIN)/python bench/same_model.py)

inventories: $(TEST) ## ask JAX, Flax, Optax and NumPy anew where each name is documented (needs a network)
	@$(TOOLS) book.inventories

linkcheck: $(DOCS) html ## follow every link of the prose to other sites (needs a network)
	@for tree in zh en; do PYTHONPATH=docs $(BIN)/python -m sphinx -b linkcheck -q -c docs -t $$tree \
	  -D nb_execution_cache_path=build/sphinx/executed -d build/linkcheck/$$tree/doctrees \
	  docs/$$tree build/linkcheck/$$tree || exit 1; done

pair: $(DOCS) ## after reading both languages of a page again: make pair PAGE=jit
	@$(TOOLS) book.author.pairs stamp $(PAGE)

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url $(RESOLVE)

NEWER := $(if $(UPGRADE),$(addprefix --upgrade-package ,$(UPGRADE)),--upgrade)

lock: $(DOCS) ## resolve pyproject.toml anew into the lock files; UPGRADE="jax jaxlib" just those; RESOLVE=options of uv
	$(COMPILE) $(NEWER) pyproject.toml --extra training --extra today --group docs -o requirements.lock
	$(COMPILE) $(NEWER) --group test -c requirements.lock -o requirements-test.lock

clean: ## remove everything that was built, .venv too
	rm -rf build .venv .pytest_cache .ruff_cache

LOCKS := requirements.lock requirements-test.lock pyproject.toml docs/book/install.py

setup: $(TEST) browser ## install all that tests need: .venv; as root on Debian, Chromium and a Chinese font
browser:
	@PYTHONPATH=docs:examples $(PYTHON) -m book.install browser

.venv/ready-%: $(LOCKS)
	@$(PYTHON) -c 'import sys; sys.exit("See JAX needs Python 3.11 or newer; set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	@PYTHONPATH=docs:examples $(PYTHON) -m book.install $*
