"""Run a recipe up to a stage: build what is missing, leave what is up to date.

    make grpo RECIPE=grpo7b MODEL=/my/weights learning_rate=1e-5 sft.max_length=1024
    python -m pipeline eval MODEL=/my/weights TASKS="math500 aime24" SAMPLES=32
    sft-grpo-math demo --dry-run

All three take the same words. Capitals are variables. The rest are keys: of the stage before the
dot, else of the stage that is asked for.
"""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline.venv import fault, missing

try:
    from pipeline import clean
    from pipeline.commands import (
        Command,
        commands,
        evaluation_of_base,
        look_ahead,
        only_command,
        pending,
        resolve_models,
        stage_words,
    )
    from pipeline.errors import INTERRUPTED, UserError, killed, run_cli
    from pipeline.folders import check_links
    from pipeline.freshness import check_finished, check_same_run, looks_current, settings_of
    from pipeline.lock import claim
    from pipeline.memory import num_oom_kills
    from pipeline.recipe_files import known_recipes
    from pipeline.request import Request, check_goals, read
    from pipeline.scoring import check_scoring
    from pipeline.show import show_keys
    from pipeline.stages import COMMANDS, GOALS, PASSED_ON, STAGES, TOOLS, TRAINED, load
    from pipeline.words import OPTIONS, VARIABLES
except ModuleNotFoundError as error:
    if not missing(error):
        raise
    sys.stderr.write(f"error: {missing(error)}\n")
    sys.exit(2)


def main() -> None:
    """Read the command line, look at what is there, run what is missing."""
    argv = ["--help"] if sys.argv[1:] == ["help"] else sys.argv[1:]
    if argv and argv[0] in PASSED_ON:
        start(["-m", PASSED_ON[argv[0]], *argv[1:]])
    check_environment()
    request = read(argv, os.environ)
    if "help" in request.options or not (argv or request.goals):
        show_help(request)
        return
    if not request.goals:
        raise UserError(f"goal: missing; name one of {', '.join(GOALS)}")
    set_environment(request)
    check_goals(request)
    check_scoring(request)
    if request.asks_for("show"):
        show_keys(request)
        return
    resolve_models(request)
    check_same_run(request)
    if request.asks_for("clean"):
        run_clean(request)
    elif "list" in request.options:
        sys.stdout.write("\n".join([request.run, *pending(request)]) + "\n")
    elif "start-model" in request.options:
        show_start_model(request)
    elif "only" in request.options:
        run_only(request)
    else:
        run_missing(request)


def start(words: Sequence[str]) -> None:
    """Become `python WORDS`."""
    os.execve(sys.executable, [sys.executable, *words], child_env())


def check_environment() -> None:
    """Refuse a virtual environment of another clone, from which make takes its Python."""
    if "MAKE_GOALS" not in os.environ:  # not started by make
        return
    wrong = fault(os.environ.get("VENV", ".venv"))
    if wrong:
        raise UserError(wrong)


def set_environment(request: Request) -> None:
    """What all processes of the command read: when MAX_HOURS are over, whether to rehearse."""
    if request["max_hours"]:
        stop_at = time.time() + 3600 * request["max_hours"]
        os.environ.setdefault("STOP_AT", f"{stop_at:.0f}")
    if request["rehearse"]:
        os.environ["REHEARSE"] = request["rehearse"]


def show_start_model(request: Request) -> None:
    """Print what GRPO's vLLM server is started with, one word a line: the model, then flags."""
    if request.goals != ("grpo",):
        raise UserError("--start-model: is of grpo; give that goal alone")
    words = stage_words(request, "grpo")
    served = load("stages.host:served")
    sys.stdout.write("".join(f"{word}\n" for word in served(settings_of("grpo", words))))


def run_missing(request: Request) -> None:
    """Run the commands of a request that are not up to date, or print them."""
    planned = commands(request)
    if "dry-run" in request.options:
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
    waiting = [*planned]
    while waiting:
        if is_done(request, waiting[0]):
            del waiting[0]
        else:
            run_command(request, *take(request, waiting))


def take(request: Request, waiting: list[Command]) -> tuple[Command, Command | None]:
    """Take the next command, and what the demo runs beside it on its second core.

    Elsewhere nothing does: a failed audit must not cost hours of training, and a GPU is not shared.
    """
    command = waiting.pop(0)
    following = waiting[0] if waiting and request.asks_for("demo") else None
    if following is None:
        return command, None
    pair = (command.stage, following.stage)
    if pair == ("audit", "sft") and not is_done(request, following):
        return waiting.pop(0), command
    if pair == ("grpo", "eval"):
        return command, evaluation_of_base(request, following)
    return command, None


def is_done(request: Request, command: Command) -> bool:
    """Whether a command need not run: a stage before it may have written the same result again."""
    return command.is_needed_only and looks_current(request, command.stage, command.words)


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
    """Run one stage or tool alone, without the stages before it."""
    if len(request.goals) > 1 or request.asks_for("demo"):
        raise UserError("--only: takes one command, a stage or a tool, but not demo")
    command = only_command(request)
    if "dry-run" in request.options:
        show([command])
        return
    run_command(request, command)


def run_command(request: Request, command: Command, beside: Command | None = None) -> None:
    """Run one command to its end; of a stage also look whether it has finished.

    Args:
        beside: another one, which runs at the same time.
    """
    started = time.time()
    env = child_env(force="1" if command.is_forced else "")
    run(command.words, env, beside.words if beside else ())
    for one in (command, beside):
        if one and one.stage in STAGES:
            check_finished(Path(request.run, one.stage), one.words, started)


def run_clean(request: Request) -> None:
    """Say what a run holds; with YES=1 remove it, with YES=states what only a resume needs."""
    if request["yes"] in ("", "0") or "dry-run" in request.options:
        clean.show(request.run)
        return
    claim(request.run)
    if request["yes"] == "states":
        clean.remove_states(request.run)
    else:
        clean.remove(request.run)


def run(words: Sequence[str], env: dict[str, str], beside: Sequence[str] = ()) -> None:
    """Run `python WORDS` to its end; leave with its exit code where that is not 0.

    Args:
        beside: words of another command, which runs at the same time. If one of the two fails, the
            other is ended, too. What this one says is shown after both.
    """
    # A terminal sends Ctrl-C to the stage, too, which says how to resume.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    num_kills = num_oom_kills()
    with tempfile.TemporaryFile() as said:
        processes = [subprocess.Popen([sys.executable, *words], env=env)]
        if beside:
            second = [sys.executable, *beside]
            processes.append(subprocess.Popen(second, env=env, stdout=said, stderr=said))

        def pass_on(number: int, _: object) -> None:
            for process in processes:
                process.send_signal(number)

        handlers = {signal.SIGINT: before}
        for number in (signal.SIGTERM, signal.SIGHUP):  # of a job's end, of a closed terminal
            handlers[number] = signal.signal(number, pass_on)
        try:
            last = wait_for(processes)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        # Not what it said until the first one's fault ended it.
        if last is processes[-1] or processes[-1].returncode == 0:
            said.seek(0)
            sys.stdout.write(said.read().decode(errors="replace"))
            sys.stdout.flush()  # before the next stage speaks
    code = last.returncode
    if code == -signal.SIGKILL:  # it had no time to tell why
        its_words = words if last is processes[0] else beside
        raise killed(shlex.join(["python", *its_words]), num_kills)
    if code:
        sys.exit(128 - code if code < 0 else code)


def wait_for(processes: Sequence[subprocess.Popen]) -> subprocess.Popen:
    """The first process that failed, which ends the others; else the one that ended last."""
    ended: list[subprocess.Popen] = []
    while len(ended) < len(processes):
        for process in processes:
            if process in ended or process.poll() is None:
                continue
            ended.append(process)
            # End the others as Ctrl-C does, which leaves no lock. A terminal's own reaches all.
            if process.returncode not in (0, INTERRUPTED, -signal.SIGINT):
                for other in processes:
                    other.send_signal(signal.SIGINT)
        time.sleep(0.05)
    return next((process for process in ended if process.returncode), ended[-1])


def child_env(force: str = "") -> dict[str, str]:
    """The environment of a stage."""
    of_make = ("MAKE_GOALS", "MAKE_WORDS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")
    env = {key: value for key, value in os.environ.items() if key not in of_make}
    env["FORCE"] = force
    # DeepSpeed builds with ninja, which the virtual environment has.
    env["PATH"] = os.pathsep.join([env.get("PATH", ""), str(Path(sys.executable).parent)])
    return env


def show_help(request: Request) -> None:
    """Print the commands, variables and options; of a stage or tool its keys."""
    for goal in request.goals:
        row = COMMANDS.get(goal)
        if row and row.module:
            start(["-m", row.module, "--help"])
    lines = [(__doc__ or "").strip(), "", "Commands:"]
    meanings = {"demo": "the whole pipeline; ends with the page of results"}
    meanings |= {name: row.meaning for name, row in COMMANDS.items()}
    meanings |= {"grade": "grade a file of completions", "launch": "accelerate launch, of a stage"}
    lines += [f"  {name:22}{meaning}" for name, meaning in meanings.items()]
    lines += ["", "Variables, here or in the environment:"]
    lines += [f"  {name.upper():22}{meaning}" for name, (_, meaning) in VARIABLES.items()]
    lines.append("  ALLOW_CODE, CUDA_…, HF_… and others of libraries reach the stages")
    lines += ["", "Options:", *(f"  --{name:20}{meaning}" for name, meaning in OPTIONS.items())]
    lines += [
        "",
        f"Recipes: {', '.join(known_recipes())}",
        "All keys of a stage: sft-grpo-math STAGE --help",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def console() -> None:
    """The command `sft-grpo-math`, which never imports an eval.py of the working folder."""
    os.environ["PYTHONSAFEPATH"] = "1"  # of the stages: not the working folder, as with -P
    run_cli(main, is_first=False)


if __name__ == "__main__":
    run_cli(main, is_first=False)
