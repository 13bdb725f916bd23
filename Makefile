# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up .venv first.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KPIPE := $(BIN)/kpipe
DEMO := runs/demo

.PHONY: setup demo test lint types unit bench compatibility applications clean lock

setup: $(STAMP)

# Bytecode is compiled at install: without it TensorFlow takes three times as long to import.
$(STAMP): requirements/all.lock requirements/bootstrap.lock pyproject.toml
	$(PYTHON) -c "import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else 'kpipe needs Python 3.11 to 3.13; set PYTHON=...')"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	$(BIN)/uv pip sync --quiet --require-hashes --compile-bytecode --python $(BIN)/python requirements/all.lock
	$(BIN)/uv pip install --quiet --no-deps --no-build-isolation --python $(BIN)/python --editable .
	$(BIN)/python -m compileall -q pipeline stages
	touch $(STAMP)

demo: $(STAMP)
	rm -rf $(DEMO) && mkdir -p build
	$(KPIPE) train examples/digits --out build/demo/model.keras
	$(KPIPE) validate build/demo/model.keras --contract examples/digits/kpipe.toml --out $(DEMO)

test: $(STAMP) lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: $(STAMP)
	$(BIN)/python bench/run.py

compatibility: $(STAMP)
	$(BIN)/kpipe compatibility --against docs/compatibility.json --out docs/compatibility.md --json docs/compatibility.json

applications: $(STAMP)
	$(BIN)/python bench/applications.py

clean:
	rm -rf build runs .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The result names no host.
lock: $(STAMP)
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --all-extras --group dev \
		--constraints requirements/constraints.txt pyproject.toml --output-file requirements/all.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet --all-extras \
		--constraints requirements/constraints.txt pyproject.toml --output-file requirements/runtime.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet requirements/bootstrap.in \
		--output-file requirements/bootstrap.lock
