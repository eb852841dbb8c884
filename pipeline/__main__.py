"""Run a recipe up to a stage: build what is missing, leave what is up to date.

    python -m pipeline grpo --recipe grpo7b --model /my/weights -- --learning_rate 1e-4
    python -m pipeline eval --model /my/weights --tasks math500 aime24 --samples 32
    python -m pipeline demo --dry-run
    sft-grpo-math sft --only --config mine/sft.yaml --run_dir runs/mine

The same as `make grpo RECIPE=grpo7b MODEL=/my/weights ARGS="--learning_rate 1e-4"`.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.venv import fault, missing

try:
    from pipeline import clean
    from pipeline.commands import (
        Command,
        commands,
        look_ahead,
        pending,
        resolve_models,
        result_folder,
        stage_command,
        stage_words,
    )
    from pipeline.errors import UserError, killed, run_cli
    from pipeline.folders import check_links
    from pipeline.freshness import check_finished, check_same_run, looks_current, settings_of
    from pipeline.lock import claim
    from pipeline.memory import num_oom_kills
    from pipeline.stages import GOALS, PASSED_ON, STAGES, TOOLS, TRAINED, load
    from pipeline.variables import OPTIONS, VARIABLES, Request, check_goals, known_recipes, read
except ModuleNotFoundError as error:
    if not missing(error):
        raise
    sys.stderr.write(f"error: {missing(error)}\n")
    sys.exit(2)


def main() -> None:
    """Read the command line, look at what is there, run what is missing."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help", "help"):
        sys.stdout.write(help_text())
        return
    if words[0] in PASSED_ON:
        module = PASSED_ON[words[0]]
        os.execve(sys.executable, [sys.executable, "-m", module, *words[1:]], child_env())
    check_environment()
    request = read(words, os.environ)
    set_deadline(request)
    if request["rehearse"]:  # which preflight reads, too
        os.environ["REHEARSE"] = request["rehearse"]
    if not request.goals:
        raise UserError(f"goal: missing; name one of {', '.join(GOALS)}")
    check_goals(request)
    if request.only:
        run_only(request)
        return
    resolve_models(request)
    check_same_run(request)
    if request.asks_for("clean"):
        run_clean(request)
    elif request.list_stages:
        sys.stdout.write("\n".join([request.run, *pending(request)]) + "\n")
    elif request.start_model:
        show_start_model(request)
    else:
        run_missing(request)


def check_environment() -> None:
    """Refuse a virtual environment of another clone, from which make takes its Python."""
    if "MAKE_GOALS" not in os.environ:  # not started by make
        return
    wrong = fault(os.environ.get("VENV", ".venv"))
    if wrong:
        raise UserError(wrong)


def set_deadline(request: Request) -> None:
    """Set the time at which training ends by MAX_HOURS, for all stages of the command together."""
    if request["max_hours"]:
        stop_at = time.time() + 3600 * float(request["max_hours"])
        os.environ.setdefault("STOP_AT", f"{stop_at:.0f}")


def show_start_model(request: Request) -> None:
    """Print what GRPO's vLLM server is started with, one word a line: the model, then flags."""
    if request.goals != ("grpo",):
        raise UserError("--start-model: is of grpo; give that goal alone")
    words = stage_words(request, "grpo", is_asked=True)
    served = load("stages.host:served")
    sys.stdout.write("".join(f"{word}\n" for word in served(settings_of("grpo", words))))


def run_missing(request: Request) -> None:
    """Run the commands of a request that are not up to date, or print them."""
    planned = commands(request)
    if request.dry_run:
        show(planned)
    elif planned:
        run_all(request, planned)
    else:
        goals = ", ".join(request.goals)
        sys.stdout.write(
            f"{goals}: nothing to do, {request.run} is up to date; FORCE=1 runs it again\n"
        )


def show(planned: Sequence[Command]) -> None:
    """Print commands as one would type them."""
    for command in planned:
        sys.stdout.write(f"{shlex.join(['python', *command.words])}\n")


def run_all(request: Request, planned: Sequence[Command]) -> None:
    """Run commands one after the other; no other process writes to the run meanwhile."""
    writes = [goal for goal in request.goals if goal not in TOOLS or TOOLS[goal].writes]
    if writes:
        if request["model"]:
            tell_of_model(request, planned)
            sys.stdout.flush()
        if check := look_ahead(request, planned):  # before an earlier stage costs time
            run(check, child_env())
        claim(request.run)
        if any(command.stage in TRAINED for command in planned):
            check_links(request.run)
    for command in planned:
        # An earlier stage may have written the same result again; then this one is up to date.
        if command.is_needed_only and looks_current(request, command.stage, command.words):
            continue
        started = time.time()
        run(command.words, child_env(force="1" if command.is_forced else ""))
        if command.stage in STAGES:
            check_finished(Path(request.run, command.stage), command.words, started)


def tell_of_model(request: Request, planned: Sequence[Command]) -> None:
    """Say where the results of a user's own model go, and what is trained from it first."""
    model = request["model"]
    if request.is_scoring:
        sys.stdout.write(f"MODEL={model}: scored as it is; the results are in {request.run}\n")
        return
    sys.stdout.write(f"MODEL={model}: the run is in {request.run}\n")
    trained = [one.stage for one in planned if one.stage in TRAINED and one.is_needed_only]
    if trained and request.asks_for("eval"):
        command = f'make eval MODEL={shlex.quote(model)} TASKS="math500 aime24"'
        stages = " and ".join(trained)
        sys.stdout.write(f"eval trains {stages} from it first; to score it as it is: {command}\n")


def run_only(request: Request) -> None:
    """Run one stage or tool alone, with the flags that follow its name."""
    goal = request.goals[0]
    if len(request.goals) > 1 or goal in ("demo", "clean"):
        raise UserError("--only: takes one command, a stage or a tool, but not demo or clean")
    command = stage_command(request, goal)
    if request.dry_run:
        show([command])
        return
    folder = result_folder(request, command) if goal in STAGES else None
    started = time.time()
    run(command.words, child_env(force="1" if request.is_on("force") else ""))
    if folder:
        check_finished(folder, command.words, started)


def run_clean(request: Request) -> None:
    """Say what a run holds; with YES=1 remove it, with YES=states what only a resume needs."""
    if not request.is_on("yes") or request.dry_run:
        clean.show(request.run)
        return
    claim(request.run)
    if request["yes"] == "states":
        clean.remove_states(request.run)
    else:
        clean.remove(request.run)


def run(words: Sequence[str], env: dict[str, str]) -> None:
    """Run `python WORDS` to its end; leave with its exit code where that is not 0."""
    # A terminal sends Ctrl-C to the stage, too, which says how to resume.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    num_kills = num_oom_kills()
    process = subprocess.Popen([sys.executable, *words], env=env)

    def pass_on(number: int, _: object) -> None:
        process.send_signal(number)

    handlers = {signal.SIGINT: before}
    for number in (signal.SIGTERM, signal.SIGHUP):  # of a job's end, of a closed terminal
        handlers[number] = signal.signal(number, pass_on)
    try:
        code = process.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code == -signal.SIGKILL:  # it had no time to tell why
        raise killed(shlex.join(["python", *words]), num_kills)
    if code:
        sys.exit(128 - code if code < 0 else code)


def child_env(force: str = "") -> dict[str, str]:
    """The environment of a stage."""
    env = {key: value for key, value in os.environ.items() if key not in ("MAKE_GOALS", "ARGS")}
    env["FORCE"] = force
    # DeepSpeed builds with ninja, which the virtual environment has.
    env["PATH"] = os.pathsep.join([env.get("PATH", ""), str(Path(sys.executable).parent)])
    return env


def help_text() -> str:
    """The commands, variables and options, each with its meaning."""
    lines = [(__doc__ or "").strip(), "", "Commands:"]
    meanings = {"demo": "the whole pipeline; ends with the page of results"}
    meanings |= {name: row.meaning for name, row in [*STAGES.items(), *TOOLS.items()]}
    meanings |= {"grade": "grade a file of completions", "launch": "accelerate launch, of a stage"}
    lines += [f"  {name:22}{meaning}" for name, meaning in meanings.items()]
    lines += ["", "Variables, as --name VALUE, as NAME=VALUE of make, or in the environment:"]
    lines += [f"  --{name:20}{meaning}" for name, (_, meaning) in VARIABLES.items()]
    lines += ["", "Options:", *(f"  --{name:20}{meaning}" for name, meaning in OPTIONS.items())]
    lines += [
        "",
        f"Recipes: {', '.join(known_recipes())}",
        "All keys of a stage: python -m pipeline STAGE --help",
    ]
    return "\n".join(lines) + "\n"


def console() -> None:
    """The command `sft-grpo-math`, which never imports an eval.py of the working folder."""
    os.environ["PYTHONSAFEPATH"] = "1"  # of the stages: not the working folder, as with -P
    run_cli(main, is_first=False)


if __name__ == "__main__":
    run_cli(main, is_first=False)
