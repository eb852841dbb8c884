#!/bin/bash
# All stages of a recipe, up to the report, on one or several GPU hosts under Slurm. In the project's
# folder on a shared file system, after `make gpu-env` and `make fetch RECIPE=…` on a login node:
#
#   RECIPE=grpo7b sbatch --nodes 1 configs/accelerate/slurm.sh
#   RECIPE=grpo7b VLLM_HOSTS=1 VLLM_ARGS="--tensor-parallel-size 4 --max-model-len 1536" \
#     MAX_HOURS=23 sbatch --nodes 2 configs/accelerate/slurm.sh
#   RECIPE=grpo7b sbatch --nodes 1 configs/accelerate/slurm.sh grpo.top_p=0.8 sft.max_length=1024
#   RECIPE=justrl-1.5b bash configs/accelerate/slurm.sh --dry-run --nodes 4
#
# Words with = are keys, each with its stage. The last line prints what preflight finds on so many GPUs, and what the job would start.
#
# SFT and GRPO train on all hosts, sharded by FSDP2; the other stages run on the first. A step keeps
# the recipe's rows (batch_for_gpus). vLLM shares the trainers' GPUs, as the recipe says; with
# VLLM_HOSTS=1 the last host is a server for it. A killed process is started again by its launcher, a
# killed launcher by its task, and the stage resumes from its last checkpoint. Submitted again, or put
# back into the queue after a host's failure, the job goes on: what is finished is skipped.
#
#   MAX_HOURS  less than --time: training saves, and the job ends; submit it again to go on
#   MODEL, LORA, SEED, RUN, DATA_ROOT, AUDIT as for make
# docs/scale.md has the ports, and what of this has been run.
#SBATCH --job-name=sft-grpo
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log
set -euo pipefail

fail() {
  echo "error: $*" >&2
  exit 2
}

dry_run=
keys=()
while (($# > 0)); do
  case $1 in
    --dry-run) dry_run=1 ;;
    --nodes) # of a dry run without Slurm
      [[ ${2-} =~ ^[1-9][0-9]*$ ]] || fail "--nodes: '${2-}' is no number of hosts"
      SLURM_JOB_NODELIST=$(seq -s ' ' -f 'host-%g' "$2")
      shift
      ;;
    *.*=*) keys+=("$1") ;;
    *) fail "$1: unknown word; --dry-run, --nodes N and keys such as sft.max_steps=9 are known" ;;
  esac
  shift
done
RECIPE=${RECIPE:-grpo7b}
# What `python -m pipeline` reads: MODEL, LORA, SEED, RUN and others, where they are set.
export RECIPE
VLLM_HOSTS=${VLLM_HOSTS:-0}
VLLM_ARGS=${VLLM_ARGS:-} # for `vllm serve`; one server uses --tensor-parallel-size GPUs
VLLM_PORT=${VLLM_PORT:-8000}
VLLM_START_SECONDS=${VLLM_START_SECONDS:-1800}
ACCELERATE=${ACCELERATE:-fsdp2} # or zero2, zero3, ddp: a file of configs/accelerate

config=configs/accelerate/$ACCELERATE.yaml
[[ -f $config ]] || fail "ACCELERATE: no $config here"
[[ -x .venv/bin/python ]] || fail ".venv: not there; run make gpu-env"
[[ $VLLM_HOSTS =~ ^[0-9]+$ ]] || fail "VLLM_HOSTS: '$VLLM_HOSTS' is no number"
# FSDP2 shards float32 weights, unless a key says another dtype.
if [[ $ACCELERATE == fsdp2 && ${LORA:-0} != 1 ]]; then
  recipe=configs/$RECIPE
  [[ -d $recipe ]] || recipe=$RECIPE
  for stage in sft grpo; do
    if [[ -f $recipe/$stage.yaml && " ${keys[*]}" != *" $stage.dtype="* ]]; then
      keys+=("$stage.dtype=float32")
    fi
  done
fi
launch_name=$ACCELERATE
unset ACCELERATE # which `launch` gives with more words
if [[ -n ${MAX_HOURS:-} ]]; then
  [[ $MAX_HOURS =~ ^[0-9]*\.?[0-9]+$ ]] || fail "MAX_HOURS: '$MAX_HOURS' is no number of hours"
  # Of the whole job, also where it was put back into the queue.
  STOP_AT=$(awk -v now="$(date +%s)" -v hours="$MAX_HOURS" 'BEGIN { printf "%d", now + 3600 * hours }')
  export STOP_AT
  unset MAX_HOURS
fi

# The run's folder, and the stages that are not up to date, in their order.
left=$(.venv/bin/python -m pipeline report --list "${keys[@]}")
RUN=$(head -n 1 <<<"$left")
mapfile -t stages < <(tail -n +2 <<<"$left")
if ((${#stages[@]} == 0)); then
  echo "$RUN/report is finished"
  exit 0
fi
if [[ -n $dry_run && ! $(command -v scontrol) ]]; then
  read -ra hosts <<<"${SLURM_JOB_NODELIST:?say how many hosts: --nodes 2}"
else
  mapfile -t hosts < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?is not set; start with sbatch}")
fi
num_trainers=$((${#hosts[@]} - VLLM_HOSTS))
((num_trainers > 0)) ||
  fail "VLLM_HOSTS: $VLLM_HOSTS of ${#hosts[@]} hosts leaves none to train; ask for more --nodes"
((VLLM_HOSTS == 0)) || command -v curl >/dev/null || fail "curl: not there; it asks vLLM's health"
trainers=("${hosts[@]:0:num_trainers}")
servers=("${hosts[@]:num_trainers}")
gpus=${SLURM_GPUS_ON_NODE:-${dry_run:+8}}
gpus=${gpus:?SLURM_GPUS_ON_NODE is not set; ask for GPUs with --gpus-per-node}
# Below the ports that systems give away by themselves.
port=$((20000 + 2 * (${SLURM_JOB_ID:-0} % 5000)))
# How GRPO meets the server: keys of this job alone, which no other stage needs.
generation=()
if ((VLLM_HOSTS > 0)); then
  generation=(grpo.use_vllm=true grpo.vllm_mode=server grpo.vllm_enable_sleep_mode=false
    "grpo.vllm_server_host=${servers[0]}" "grpo.vllm_server_port=$VLLM_PORT")
fi
echo "trainers: ${trainers[*]} ($gpus GPUs each), port $port; vLLM: ${servers[*]:-none}"

# What preflight finds for the GPUs of all trainers, with the keys of the server.
preflight_code=0
[[ -z $dry_run ]] || .venv/bin/python -m pipeline preflight "GPUS=$((num_trainers * gpus))" \
  "ACCELERATE=$launch_name" "${keys[@]}" "${generation[@]}" || preflight_code=$?

# step_on HOST...: the flags of a step with one task on each host and all of its CPUs (a task gets
# one alone); when one fails the others are ended.
step_on() {
  local list
  told_hosts=$*
  list=$(IFS=,; echo "$*")
  step=(--nodes=$# --ntasks=$# --ntasks-per-node=1 "--nodelist=$list"
    "--cpus-per-task=${SLURM_CPUS_ON_NODE:-1}" --kill-on-bad-exit=1)
}

# on_hosts TEXT COMMAND...: a command in the step that `step_on` has described; a dry run prints the text.
on_hosts() {
  if [[ -n $dry_run ]]; then
    echo "on $told_hosts: $1"
  else
    srun "${step[@]}" "${@:2}"
  fi
}

# launch STAGE KEYS...: a stage on all GPUs of the trainers; a launcher that was killed (137) is
# started again. The place in the list is the host's number.
launch() {
  local how="--config_file $config --num_machines $num_trainers"
  how+=" --num_processes $((num_trainers * gpus)) --main_process_ip ${trainers[0]}"
  how+=" --main_process_port $port --same_network --deepspeed_multinode_launcher standard"
  step_on "${trainers[@]}"
  local text="python -m pipeline $1 --only ACCELERATE='--machine_rank <place> $how' ${*:2}"
  # shellcheck disable=SC2016 # expanded on the host
  on_hosts "$text" env TRAINERS="${trainers[*]}" HOW="$how" bash -c '
    rank=0
    for host in $TRAINERS; do
      [[ $host == "$SLURMD_NODENAME" ]] && break
      rank=$((rank + 1))
    done
    for _ in 1 2 3 4; do
      code=0
      .venv/bin/python -m pipeline "$1" --only ACCELERATE="--machine_rank $rank $HOW" \
        "${@:2}" || code=$?
      ((code == 137)) || break
    done
    exit "$code"' launch "$@"
}

# on_first STAGE: what one host does, on all of its GPUs where the stage can use them.
on_first() {
  local how=()
  if [[ $1 == difficulty || $1 == distill || $1 == eval ]] && ((gpus > 1)); then
    how=(ACCELERATE="--config_file configs/accelerate/ddp.yaml --num_processes $gpus")
  fi
  step_on "${trainers[0]}"
  on_hosts "python -m pipeline $1 --only ${how[*]} ${keys[*]}" \
    .venv/bin/python -m pipeline "$1" --only "${how[@]}" "${keys[@]}"
}

# serve: vLLM's server in the background; on several hosts one server, held together by Ray.
server=
serve() {
  local ray=() words served
  words=$(.venv/bin/python -m pipeline grpo --start-model ${dry_run:+--dry-run} "${keys[@]}" \
    "${generation[@]}")
  mapfile -t served <<<"$words" # the model, then the flags by which a server follows the recipe
  ((${#servers[@]} == 1)) || ray=(--distributed-executor-backend ray)
  step_on "${servers[@]}"
  # What the trainer needs of it: docs/vllm.md.
  local flags=(--port "$VLLM_PORT" --enable-scale-out
    --weight-transfer-config '{"backend": "nccl"}' "${served[@]:1}" "${ray[@]}")
  # shellcheck disable=SC2016,SC2206 # expanded on the host; VLLM_ARGS is several words
  local command=(env VLLM_SERVER_DEV_MODE=1 HEAD="${servers[0]}" bash -c '
    PATH=$PWD/.venv/bin:$PATH
    if [[ $1 == 1 ]]; then
      exec vllm serve "${@:2}"
    elif [[ $SLURMD_NODENAME == "$HEAD" ]]; then
      ray start --head --port 6379
      until (($(ray status | grep -c "node_") >= $1)); do sleep 2; done
      exec vllm serve "${@:2}"
    else
      until ray start --address "$HEAD:6379" --block; do sleep 2; done
    fi' serve "${#servers[@]}" "${served[0]}" "${flags[@]}" $VLLM_ARGS)
  if [[ -n $dry_run ]]; then
    on_hosts "vllm serve ${served[0]} ${flags[*]} $VLLM_ARGS"
  else
    srun "${step[@]}" "${command[@]}" &
    server=$!
  fi
}
end_server() { [[ -z $server ]] || kill "$server" 2>/dev/null || true; } # srun passes it on
trap end_server EXIT

await_server() {
  local url="http://${servers[0]}:$VLLM_PORT/health" end=$((SECONDS + VLLM_START_SECONDS))
  until curl --fail --silent --max-time 5 --output /dev/null "$url"; do
    kill -0 "$server" 2>/dev/null || fail "vLLM ended before it answered $url; its log is above"
    ((SECONDS < end)) || fail "vLLM: no answer at $url in $VLLM_START_SECONDS s"
    sleep 1
  done
  echo "vLLM answers at $url"
}

# stop CODE: the end of a stage that did not finish; in time, where MAX_HOURS ended it.
stop() {
  if [[ -n ${STOP_AT:-} ]] && (($(date +%s) >= STOP_AT)); then
    echo "MAX_HOURS is over; submit the same line again to go on"
    exit 0
  fi
  exit "$1"
}

for stage in "${stages[@]}"; do
  code=0
  case $stage in
    sft) launch sft "${keys[@]}" || code=$? ;;
    grpo)
      if ((VLLM_HOSTS > 0)); then
        serve
        [[ -n $dry_run ]] || await_server
      fi
      launch grpo "${keys[@]}" "${generation[@]}" || code=$?
      [[ -n $dry_run ]] || end_server
      server=
      ;;
    *) on_first "$stage" || code=$? ;;
  esac
  ((code == 0)) || stop "$code"
done
exit "$preflight_code"
