# Everything here starts from a fresh clone with Python 3.11 or later and make.
PYTHON ?= python3
VENV ?= .venv
# Extra arguments for installing torch, for instance an index of
# builds without CUDA, which are smaller by gigabytes.
TORCH_PIP_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALLED := $(VENV)/.installed
PEERS := $(VENV)/.peers
SOURCES := src tests examples benchmarks conftest.py

.PHONY: help demo test audit check bench clean

help:
	@echo "make demo    the averaging attack on a count, then a private model of Adult with its report; writes out/"
	@echo "make test    make check, then every test but the long audits"
	@echo "make audit   the long audits: many whole runs of one algorithm, and of its broken twins;"
	@echo "             WRITE_AUDITS=1 make audit writes them to docs/audits.md"
	@echo "make check   ruff, mypy and import-linter"
	@echo "make bench   side by side with other libraries, which it installs"
	@echo "make clean   remove what the other targets made"

demo: $(INSTALLED)
	$(BIN)/python examples/noisy_counting.py
	$(BIN)/python examples/adult_income.py

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not audit"

audit: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m audit tests

check: $(INSTALLED)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(PEERS)
	@set -e; for file in benchmarks/[!_]*.py; do echo "$$file"; $(BIN)/python "$$file"; done

clean:
	rm -rf $(VENV) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# torch comes first and alone, so that no other package chooses its version or build.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "tacit needs Python 3.11 or later; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH_PIP_ARGS) torch==2.13.0
	$(PIP) -e ".[dev]"
	@touch $@

$(PEERS): $(INSTALLED)
	$(PIP) -e ".[dev,peers]"
	@touch $@
