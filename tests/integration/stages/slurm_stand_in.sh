#!/bin/bash
# One script under seven names: what a job of configs/accelerate/slurm.sh starts. A call is a line of
# $LOG, with the name, the host and the words; its answer is in the environment.
name=${0##*/} host=${SLURMD_NODENAME:-none}
tell() { printf '%s\n' "$(printf '%q ' "$name" "$host" "$@")" >>"$LOG"; }
case $name in
  scontrol) # show hostnames
    printf '%s\n' $3 ;;
  srun) # a task on each host; a signal goes to all of them
    for word in "$@"; do
      [[ $word == --* ]] || break
      [[ $word != --nodelist=* ]] || hosts=${word#*=}
      [[ $word != --cpus-per-task=* ]] || tell "$word"
      shift
    done
    for host in ${hosts//,/ }; do
      SLURMD_NODENAME=$host "$@" &
      tasks+=($!)
    done
    trap 'kill "${tasks[@]}"' TERM
    code=0
    for task in "${tasks[@]}"; do wait "$task" || code=$?; done
    wait
    exit "$code" ;;
  python)
    tell "$@"
    [[ -n $RECIPE && -z $ACCELERATE$MAX_HOURS ]] || exit 9 # the last two are given in other words
    case " $* " in
      *" --list "*) echo "$LEFT"; exit "${LIST_CODE:-0}" ;;
      *" --start-model "*) echo "$SERVED"; exit ;;
      *" preflight "*) exit "${PREFLIGHT_CODE:-0}" ;;
    esac
    is_first=$(($(grep -c "^python $host " "$LOG") == 1))
    [[ $host$is_first != "${KILL}1" ]] || kill -KILL $$
    [[ $3 != "$FAIL" ]] || exit "${CODE:-1}" ;;
  vllm)
    trap 'tell ended; kill $!; exit' TERM
    tell "$@" "$VLLM_SERVER_DEV_MODE"
    [[ -z $SERVER_FAILS ]] || exit 1
    sleep 60 >/dev/null 2>&1 &
    wait ;;
  curl)
    tell "${@: -1}"
    [[ -z $SERVER_FAILS ]] && grep -q "^vllm " "$LOG" ;;
  ray)
    tell "$@"
    [[ $1 != status ]] || grep "^ray .* start " "$LOG" | sed "s/^/node_/" ;;
esac
