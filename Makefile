# Each target calls one Python file in env/; `make help` says what they do.
# Written where the offline bundle is unpacked: its own Rust, Python packages and crates.
-include offline.mk
PYTHON ?= python3
# In `make bundle PYTHON=3.12` it is the other machine's Python.
ifneq ($(filter bundle,$(MAKECMDGOALS)),)
export BUNDLE_PYTHON := $(filter 3.%,$(PYTHON))
override PYTHON := $(if $(BUNDLE_PYTHON),python3,$(PYTHON))
endif
.DEFAULT_GOAL := help
.PHONY: help setup lab run test verify bench-cells bundle clean
export LESSONS NO_BROWSER PORT NB JSON PART NVRTC

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing, build once what all notebooks use (LESSONS=20,21 NVRTC=12)
	@$(PYTHON) env/setup.py

lab: setup ## open JupyterLab on the first lesson (LESSONS=20 NO_BROWSER=1 PORT=8888)
	@$(PYTHON) env/lab.py

run: ## execute all notebooks, or one: NB=02_async_timing; results in results/run/
	@$(PYTHON) env/run.py

test: ## prove the course: style, tests, kernels, notebooks with their solutions, the browser
	@$(PYTHON) env/test.py

verify: ## what this machine has for the course, and how to add what is missing (JSON=1)
	@$(PYTHON) env/verify.py

bench-cells: setup ## how long notebooks take to start and cells to run, as a table (JSON=1)
	@.venv/bin/python env/bench_cells.py $(if $(JSON),--json)

bundle: ## pack all that a GPU machine without internet needs (PART=60M PYTHON=3.12 NVRTC=13|12|none)
	@NVRTC= $(PYTHON) env/setup.py
	@.venv/bin/python env/bundle.py

clean: ## remove what set-up made; keeps results/ and the compiled crates in target/
	@rm -rf .venv .gpulab
