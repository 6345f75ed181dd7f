# Everything runs in .venv, which `make` creates itself. It needs Python >= 3.11, make and a C++ compiler.
# Another interpreter: `make test PYTHON=python3.12`; more test processes: `make test WORKERS=8`. Another release of
# torch: `make test TORCH=2.15.0`, in .venv-2.15.0. Where pip looks for packages is up to pip's own configuration.

PYTHON ?= python3
PINNED := $(shell sed -n 's/^torch==//p' constraints.txt)
NEWEST := $(shell sed -n 's/^NEWEST_TESTED = "\(.*\)"/\1/p' compiler/torch_compat/versions.py)
TORCH ?= $(PINNED)
VENV := .venv$(if $(filter-out $(PINNED),$(TORCH)),-$(TORCH))
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PINS := $(VENV)/constraints.txt
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet --constraint $(PINS)
DEMO_OUT := build/demo
DEMO_PASS := joint/fold_scale_into_add
INDUCTOR_OUT := build/demo-inductor
BUG := cpp.inject_relu_bug_TESTING_ONLY
BUG_MODES := compile_error runtime_error accuracy
WORKERS ?= 2
DAGRE := 3.1.3
FAST := not slow and not gpu and not ray and not browser and not ecosystem
PARALLEL := --numprocesses $(WORKERS) --dist worksteal
PATH_TESTS := $(addprefix tests/,golden security) $(addprefix tests/unit/,artifacts cache_folder codegen execution fx \
  importers lowering packages partition pipeline targets torch_compat repro/test_hard_repros.py watch/test_whole_call.py)
BENCHMARKS := compile_overhead reduce false_alarms blame middle_end

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-inductor test test-path test-newest test-slow test-ray test-gpu test-browser test-ecosystem vendor lint format docs release-notes bench clean distclean

help: ## Show this list
	@echo "usage: make TARGET [TORCH=$(NEWEST)] [PYTHON=python3.12]"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{printf "%-16s %s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv and install ctk and its tools into it (done by the other targets)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("make: ctk needs Python 3.11 or newer, this is %d.%d; try make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || { echo "make: creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@sed -e 's/^torch==.*/torch==$(TORCH)/' $(if $(filter-out $(PINNED),$(TORCH)),-E -e '/^(triton|setuptools|torchvision)==/d') constraints.txt > $(PINS)
	@echo "make: installing torch $(TORCH), then ctk and its tools (a few minutes the first time)"
	@$(PIP) torch==$(TORCH)
	@$(PIP) --editable ".[dev,docs]"
	@touch $@

demo: $(STAMP) ## Find the bug planted in examples/broken_pass.py: pass, rewrite, node, smallest repro
	@rm -rf $(DEMO_OUT)
	@echo "== 1/3  a 4-layer transformer encoder with the ctk backend, without the broken pass"
	$(BIN)/ctk check examples/broken_pass.py --config custom_passes={}
	@echo "== 2/3  the same with the broken pass: who did it?"
	$(BIN)/ctk diagnose examples/broken_pass.py --out $(DEMO_OUT); test $$? -eq 1
	@echo "== 3/3  the emitted repro exits 1, and 0 with the broken pass left out"
	$(BIN)/python $(DEMO_OUT)/minimal/repro.py; test $$? -eq 1
	CTK_DISABLE=$(DEMO_PASS) $(BIN)/python $(DEMO_OUT)/minimal/repro.py
	@echo "== summary"
	@$(BIN)/ctk show $(DEMO_OUT) | head -n 1

demo-inductor: $(STAMP) ## The same for Inductor's own test bug, in its three modes
	@rm -rf $(INDUCTOR_OUT)
	@for mode in $(BUG_MODES); do \
	  echo "== diagnose --target inductor --config $(BUG)=$$mode"; \
	  $(BIN)/ctk diagnose examples/inductor_bug.py --target inductor --config $(BUG)=$$mode \
	    --out $(INDUCTOR_OUT)/$$mode; test $$? -eq 1 || exit 1; \
	done
	@echo "== summary"
	@for mode in $(BUG_MODES); do \
	  echo "$$mode: $$($(BIN)/ctk show $(INDUCTOR_OUT)/$$mode | head -n 1)"; done

test: $(STAMP) ## Run the tests in WORKERS processes, without those marked slow or gpu
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "$(FAST)"

test-path: $(STAMP) ## Run the tests of the whole path: targets, programs, packages, cache, Triton, security
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PARALLEL) -m "$(FAST)" $(PATH_TESTS)

test-newest: ## Run demo and test-path with the newest release of torch that is tested
	@$(MAKE) --no-print-directory demo test-path TORCH=$(NEWEST)

test-slow: $(STAMP) ## Run the tests marked slow
	$(BIN)/python -m pytest $(PARALLEL) -m "slow and not gpu and not ray and not browser and not ecosystem"

test-ray: $(STAMP) ## Run the tests marked ray, on a cluster of this machine (installs the extra [ray])
	@$(PIP) --editable ".[dev,ray]"
	$(BIN)/python -m pytest -m ray

test-gpu: $(STAMP) ## Run the tests marked gpu (needs a CUDA device)
	$(BIN)/python -m pytest -m gpu

test-browser: $(STAMP) ## Run the tests marked browser, in Chromium or Chrome (installs the extra [browser])
	@$(PIP) --editable ".[dev,browser]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

test-ecosystem: $(STAMP) ## Run the tests marked ecosystem: Lightning, transformers, ... (installs the extra [ecosystem])
	@$(PIP) --editable ".[dev,ecosystem]"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ecosystem tests/ecosystem

vendor: ## Fetch dagre, which lays out graphs of pages, again by npm
	@rm -rf build/vendor && npm install --silent --no-audit --no-fund --ignore-scripts --prefix build/vendor @dagrejs/dagre@$(DAGRE)
	@sed '/^\/\/# sourceMappingURL/d' build/vendor/node_modules/@dagrejs/dagre/dist/dagre.min.js > toolkit/page/vendor/dagre.min.js
	@cp build/vendor/node_modules/@dagrejs/dagre/LICENSE toolkit/page/vendor/LICENSE.dagre

lint: $(STAMP) ## Run ruff (rules and format) and pyright (strict)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(STAMP) ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## Build the site in build/site; a warning or a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict  # --quiet would hide warnings from --strict

release-notes: ## Print the section of the newest version in CHANGELOG.md
	@awk '/^## /{n++} n==1 && !/^## /' CHANGELOG.md

bench: $(STAMP) ## Run every benchmark; each prints paired numbers of one run
	@for name in $(BENCHMARKS); do echo "== $$name"; \
	  $(BIN)/python -m benchmarks.$$name | tee benchmarks/results/$$name.txt || exit 1; done

clean: ## Remove what builds, tests and demos leave behind
	rm -rf build dist .pytest_cache .ruff_cache .hypothesis ctk_dumps diagnosis_* minimal_* *.egg-info
	find compiler toolkit repro_templates tests examples benchmarks -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and those of other releases of torch
	rm -rf .venv .venv-*
