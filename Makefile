# Each target calls one module of the package env/; `make help` says what they do.
# Written where the offline bundle is unpacked: its own Rust, Python packages and crates.
-include offline.mk
PYTHON ?= python3
# In `make bundle PYTHON=3.12` it is the other machine's Python.
ifneq ($(filter bundle,$(MAKECMDGOALS)),)
export BUNDLE_PYTHON := $(filter $(addsuffix %,0 1 2 3 4 5 6 7 8 9),$(PYTHON))
override PYTHON := $(if $(BUNDLE_PYTHON),python3,$(PYTHON))
endif
.DEFAULT_GOAL := help
.PHONY: help setup lab kernel run test test-all test-gpu verify monitor book teach slides assignment grade class progress report mnist model train-cpu train-cuda train-mps corpus train-gpt serve export-onnx trt-benchmark onnx-types ptx bench-cells bundle colab test-colab test-container kernel-asset requirements links clean
.PHONY: python
export LESSONS NO_BROWSER PORT NB JSON PART NVRTC TENSORRT ARGS ASSIGNMENT POINTS EXERCISES SUBMISSIONS COURSE LIMIT JOBS ISOLATION

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# An older Python would answer with a traceback.
python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
	  echo 'error: `$(PYTHON)` is no Python of version 3.10 or newer'; \
	  echo 'next: install one; where it has another name: make setup PYTHON=python3.12'; exit 1; } >&2

setup: python ## install what is missing, build once what all notebooks use (LESSONS=20,21 or all, NVRTC=12, TENSORRT=1)
	@$(PYTHON) -m env.setup

lab: python ## open JupyterLab on the first lesson, while the set-up goes on (LESSONS=20 NO_BROWSER=1 PORT=8888)
	@$(PYTHON) -m env.lab

kernel: setup ## let VS Code, JupyterHub and your own Jupyter find the Rust kernel (REMOVE=1 takes it away)
	@.venv/bin/python -m env.setup.user_kernel $(if $(REMOVE),--remove)

run: python ## execute all notebooks, or one: NB=02_async_timing; results in results/run/; NVRTC=none: as on a Mac, where no CUDA C compiles
	@NVRTC=$(filter-out none,$(NVRTC)) $(PYTHON) -m env.run $(if $(filter none,$(NVRTC)),--without-nvrtc)

test: python ## prove the course: style, tests, kernels, notebooks with their solutions, the browser
	@$(PYTHON) -m env.ci

test-all: python ## all that `make test` proves, and more: the check for Macs, all of Colab, pictures of the book, the container (as root)
	@$(PYTHON) -m env.ci --all

test-gpu: python ## the tests that need an NVIDIA GPU; fails where there is none (ARGS="-p gpulab-nn")
	@$(PYTHON) -m env.ci.gpu

verify: python ## what this machine has for the course, and how to add what is missing (JSON=1)
	@$(PYTHON) -m env.verify

monitor: python ## watch the GPUs: utilisation, memory, power, clocks, alerts; ARGS="--record FILE", "--replay FILE", "--prometheus 127.0.0.1:9400", "--help"
	@$(PYTHON) -m env.monitor

book: python ## the course as static pages in dist/book/, with the recorded outputs: to be read without a server
	@$(PYTHON) -m env.book

teach: python ## one lesson as live slides in JupyterLab, with its kernel, and a page with the teacher's notes: NB=10 (NO_BROWSER=1 PORT=8888)
	@$(PYTHON) -m env.slides.teach

slides: python ## the lessons as slides with the recorded outputs, in dist/slides/: to be shown without a server (NB=10 for one)
	@$(PYTHON) -m env.slides

assignment: python ## the exercises of lessons as an nbgrader assignment: LESSONS=10,11 (ASSIGNMENT=week-3 POINTS=2,planes=4 EXERCISES=scale,planes)
	@$(PYTHON) -m env.grading.assignment

grade: python ## what came back, run in isolation and graded: ASSIGNMENT=week-3 SUBMISSIONS=DIR (LIMIT=60 JOBS=2 ISOLATION=less)
	@$(PYTHON) -m env.grading.grade

# Some shells have the machine's name in HOST: only what is said to make lets others in.
class: CLASS_HOST := $(if $(filter command line,$(origin HOST)),$(HOST))
class: python ## the class's predictions on your screen, live, and a contest of kernels: HOST=0.0.0.0 lets the room in (PORT=8123 CONTEST=transpose,row_sums GPU=1)
	@HOST="$(CLASS_HOST)" $(PYTHON) -m env.classroom $(ARGS)

progress: python ## your lessons run, exercises passed, predictions beside measurements; ARGS="--predictions", "--export progress.csv"
	@$(PYTHON) -m env.progress $(ARGS)

report: python ## results/metrics.csv summarised: CPU against GPU by experiment, as tables and a chart in results/
	@$(PYTHON) -m env.report

mnist: python ## fetch MNIST into data/mnist/; ARGS="--hub OWNER/NAME" for a data set of the Hugging Face hub
	@$(PYTHON) -m env.train data mnist

model: python ## fetch SmolLM2-135M-Instruct (98 MB, GGUF), the language model of lessons 40 and 41, into models/hub/
	@$(PYTHON) -m env.model

train-cpu: python ## train lesson 20's CNN; ARGS="--epochs 3 --batch-size 128 --data DIR --resume"
	@$(PYTHON) -m env.train train --device cpu

train-cuda: python ## the same on an NVIDIA GPU, on the course's own kernels; ARGS="--dtype tf32", "--kernels candle"
	@$(PYTHON) -m env.train train --device cuda

train-mps: python ## the same on a Mac's GPU
	@$(PYTHON) -m env.train train --device mps

corpus: python ## gather a text to train on from the documentation that Debian has installed here, with its licences; ARGS="--most 100"
	@$(PYTHON) -m env.corpus

train-gpt: python ## a GPT learns a text; DEVICE=cuda takes GPT-2's 124M shape, on the course's own kernels; ARGS="--model small --engine candle --steps 3000 --text FILE --out DIR --resume"
	@$(PYTHON) -m env.train train-gpt $(if $(DEVICE),--device $(DEVICE)) $(if $(filter cuda,$(DEVICE)),$(if $(findstring --model,$(ARGS)),,--model gpt2))

serve: python ## a language model over HTTP, as OpenAI's clients speak it, with a page to chat; ARGS="--model FILE --port 8000 --batch 16 --help"
	@$(PYTHON) -m env.serve

export-onnx: python ## the trained models as ONNX files, checked by ONNX's own checker; ARGS="cnn --checkpoint FILE --out DIR"; "--web DIR" adds a page that runs them in a browser
	@$(PYTHON) -m env.onnx

trt-benchmark: python ## latency and throughput of the exported CNN: candle, ONNX Runtime on CPU, CUDA, TensorRT; ARGS="--model FILE --batches 1,32"
	@$(PYTHON) -m env.onnx.benchmark

onnx-types: python ## generate the Rust types of ONNX's schema anew (crates/onnx/schema/README.md)
	@cd crates/onnx/schema/generate && cargo run --locked -- ../onnx.proto ../../src/export/schema.rs
	@rustfmt --edition 2024 --config-path rustfmt.toml crates/onnx/src/export/schema.rs

ptx: setup ## pack the PTX of all kernels of course, notebooks and solutions, for machines without NVRTC (NB=12, NB=none)
	@$(PYTHON) -m env.ptx

bench-cells: setup ## how long notebooks take to start and cells to run, as a table (JSON=1)
	@.venv/bin/python -m env.baselines.bench_cells $(if $(JSON),--json)

bundle: python ## pack all that a GPU machine without internet needs (PART=60M PYTHON=3.12 NVRTC=13|12|none)
	@$(PYTHON) -m env.offline --check
	@NVRTC= $(PYTHON) -m env.setup
	@.venv/bin/python -m env.offline

colab: python ## write the Colab edition of the notebooks, colab/, and its badges in the README
	@$(PYTHON) -m env.colab

test-colab: python ## execute the Colab edition, or one: NB=02_async_timing; results in results/run/colab/
	@$(PYTHON) -m env.run --colab --solutions

test-container: python ## build the container's image on a clean Ubuntu, without Docker, and try it (as root; LESSONS=00)
	@$(PYTHON) -m env.container

kernel-asset: python ## build the prebuilt Rust kernel that the set-up takes, in dist/kernel/; ARGS="--target aarch64-unknown-linux-gnu --url ADDRESS"
	@$(PYTHON) -m env.setup.pack_kernel $(ARGS)

requirements: python ## pin the Python packages of env/requirements/*.in anew, with their sums (needs uv)
	@sh env/requirements/pin.sh

links: python ## ask every web address in notebooks and pages whether it still answers
	@$(PYTHON) -m env.lint.external_links

clean: ## remove what set-up made; keeps results/ and the compiled crates in target/
	@rm -rf .venv .gpulab "$$($(PYTHON) -c 'from env import paths; print(paths.BUILDS)')"
