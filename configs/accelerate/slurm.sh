#!/bin/bash
# SFT, then GRPO, on several GPU hosts under Slurm; in the project's folder on a shared file system:
#
#   RECIPE=grpo7b VLLM_HOSTS=1 VLLM_ARGS="--tensor_parallel_size 4 --max_model_len 2048" \
#     SFT_ARGS="--gradient_accumulation_steps 1" GRPO_ARGS="--gradient_accumulation_steps 2" \
#     sbatch --nodes 3 configs/accelerate/slurm.sh
#
# The first hosts train, the last VLLM_HOSTS generate for GRPO; with 0 the recipe's own way holds
# (vllm_mode: colocate uses the trainers' GPUs). A killed process is started again by its launcher, a
# killed launcher by its task, and the stage resumes from its last checkpoint. Submitted again, or
# put back into the queue after a host's failure, it goes on: what is finished is skipped.
# Needs `make gpu-env` before.
# docs/scale.md has the ports, and what of this has been run.
#SBATCH --job-name=sft-grpo
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=slurm-%j.log
set -euo pipefail

RECIPE=${RECIPE:-grpo7b}
# What `python -m pipeline` reads: MODEL, LORA, SEED, RUN and DATA_ROOT, where they are set.
export RECIPE
VLLM_HOSTS=${VLLM_HOSTS:-1}
VLLM_ARGS=${VLLM_ARGS:-} # for `trl vllm-serve`; one server uses tensor_parallel_size GPUs
VLLM_PORT=${VLLM_PORT:-8000}
VLLM_START_SECONDS=${VLLM_START_SECONDS:-1800}
ACCELERATE=${ACCELERATE:-multi_node} # or zero2, zero3, fsdp2: a file of configs/accelerate
SFT_ARGS=${SFT_ARGS:-} # keys of the stage: the batch grows with the GPUs
GRPO_ARGS=${GRPO_ARGS:-}

fail() {
  echo "error: $*" >&2
  exit 2
}

config=configs/accelerate/$ACCELERATE.yaml
[[ -f $config ]] || fail "ACCELERATE: no $config here"
[[ -x .venv/bin/python ]] ||
  fail ".venv: not there; run make gpu-env"
unset ACCELERATE # which `launch` gives with more words
# The run's folder, and the stages that are not up to date, in their order.
left=$(.venv/bin/python -m pipeline grpo --list)
RUN=$(head -n 1 <<<"$left")
mapfile -t stages < <(tail -n +2 <<<"$left")
if ((${#stages[@]} == 0)); then
  echo "$RUN/grpo is finished"
  exit 0
fi
[[ $VLLM_HOSTS =~ ^[0-9]+$ ]] || fail "VLLM_HOSTS: '$VLLM_HOSTS' is no number"
((VLLM_HOSTS == 0)) || command -v curl >/dev/null || fail "curl: not there; it asks vLLM's health"

mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
num_trainers=$((${#hosts[@]} - VLLM_HOSTS))
((num_trainers > 0)) || fail "VLLM_HOSTS: $VLLM_HOSTS of ${#hosts[@]} hosts leaves none to train"
trainers=("${hosts[@]:0:num_trainers}")
servers=("${hosts[@]:num_trainers}")
gpus=${SLURM_GPUS_ON_NODE:?is not set; ask for GPUs with --gpus-per-node}
# Below the ports that systems give away by themselves.
port=$((20000 + 2 * (SLURM_JOB_ID % 5000)))
echo "trainers: ${trainers[*]} ($gpus GPUs each), port $port; vLLM: ${servers[*]:-none}"

# step_on HOST...: the flags of a step with one task on each host and all of its CPUs (a task gets
# one alone); when one fails the others are ended.
step_on() {
  local list
  list=$(IFS=,; echo "$*")
  step=(--nodes=$# --ntasks=$# --ntasks-per-node=1 "--nodelist=$list"
    "--cpus-per-task=${SLURM_CPUS_ON_NODE:-1}" --kill-on-bad-exit=1)
}

# launch STAGE KEYS...: a stage on all GPUs of the trainers; a launcher that was killed (137) is
# started again. The place in the list is the host's number.
launch() {
  local how="--config_file $config --num_machines $num_trainers"
  how+=" --num_processes $((num_trainers * gpus)) --main_process_ip ${trainers[0]}"
  how+=" --main_process_port $port --same_network --deepspeed_multinode_launcher standard"
  step_on "${trainers[@]}"
  # shellcheck disable=SC2016 # expanded on the host
  srun "${step[@]}" env TRAINERS="${trainers[*]}" HOW="$how" bash -c '
    rank=0
    for host in $TRAINERS; do
      [[ $host == "$SLURMD_NODENAME" ]] && break
      rank=$((rank + 1))
    done
    for _ in 1 2 3 4; do
      code=0
      .venv/bin/python -m pipeline "$1" --only --accelerate="--machine_rank $rank $HOW" \
        -- "${@:2}" || code=$?
      ((code == 137)) || break
    done
    exit "$code"' launch "$@"
}

# on_main STAGE: what one host does, on one GPU or none.
on_main() {
  step_on "${trainers[0]}"
  srun "${step[@]}" .venv/bin/python -m pipeline "$1" --only
}

# serve: TRL's vLLM server in the background; on several hosts one server, held together by Ray.
server=
serve() {
  step_on "${servers[@]}"
  # shellcheck disable=SC2016,SC2086 # expanded on the host; VLLM_ARGS is several words
  srun "${step[@]}" env HEAD="${servers[0]}" bash -c '
    PATH=$PWD/.venv/bin:$PATH
    if [[ $1 == 1 ]]; then
      exec trl vllm-serve "${@:2}"
    elif [[ $SLURMD_NODENAME == "$HEAD" ]]; then
      ray start --head --port 6379
      until (($(ray status | grep -c "node_") >= $1)); do sleep 2; done
      exec trl vllm-serve --distributed_executor_backend ray "${@:2}"
    else
      until ray start --address "$HEAD:6379" --block; do sleep 2; done
    fi' serve "${#servers[@]}" --model "$RUN/sft" --port "$VLLM_PORT" $VLLM_ARGS &
  server=$!
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

# The variables with keys are several words.
# shellcheck disable=SC2086
for stage in "${stages[@]}"; do
  case $stage in
    sft) launch sft $SFT_ARGS ;;
    grpo)
      generation=
      if ((VLLM_HOSTS > 0)); then
        serve
        await_server
        generation="--use_vllm true --vllm_mode server --vllm_enable_sleep_mode false"
        generation+=" --vllm_server_host ${servers[0]} --vllm_server_port $VLLM_PORT"
      fi
      launch grpo $generation $GRPO_ARGS
      ;;
    *) on_main "$stage" ;;
  esac
done
