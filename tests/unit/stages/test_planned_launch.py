"""Keys are checked ahead as on the processes of the launch, and not as on one."""

import shlex
import sys

import pytest

from pipeline import commands
from pipeline import request as requests
from pipeline.errors import UserError
from stages import host, sweep
from stages.preflight import rehearsal
from tests import demo

GRPO7B = f"{demo.ROOT}/configs/grpo7b"


@pytest.fixture
def look(tmp_path, monkeypatch):
    """Check a recipe ahead, up to GRPO, as `make` starts the check; no package is looked for."""
    monkeypatch.setattr(rehearsal, "is_installed", lambda package: True)
    monkeypatch.setattr(rehearsal, "check_packages", lambda settings: None)
    monkeypatch.delenv("WORLD_SIZE", raising=False)

    def start(**given):
        keys = given.pop("keys", "").split()
        given |= {"recipe": GRPO7B, "run": str(tmp_path)}
        words = [f"{key.upper()}={value}" for key, value in given.items()]
        request = requests.read(["grpo", *words, *keys], {})
        monkeypatch.setattr(sys, "argv", ["ahead", *commands.look_ahead(request)[2:]])
        rehearsal.main()

    return start


FITS = [
    {"accelerate": "ddp", "num_processes": "8"},
    {"accelerate": "fsdp2", "num_processes": "8", "keys": "sft.dtype=float32 grpo.dtype=float32"},
    {"accelerate": "ddp", "num_processes": "2", "keys": "grpo.vllm_tensor_parallel_size=2"},
    {"accelerate": "--num_processes 3"},  # the user's own flags are left to the launch
]
MISTAKES = [
    ({"keys": "grpo.vllm_tensor_parallel_size=2"}, "2 does not divide 1 processes"),
    (
        {"accelerate": "ddp", "num_processes": "3", "keys": "grpo.vllm_tensor_parallel_size=2"},
        "batch_for_gpus: .* has no whole number on 3",
    ),
    ({"accelerate": "ddp", "num_processes": "2", "keys": "grpo.reward_weights=1,0.5"},
     "reward_weights: .* has 2 entries"),
    ({"accelerate": "cpu"}, "use_cpu: the launch .cpu.yaml. is for CPUs"),
    ({"accelerate": "fsdp2", "num_processes": "8"}, "stochastic_rounding"),
]  # fmt: skip


@pytest.mark.parametrize("given", FITS)
def test_what_fits_the_launch_passes(look, given):
    look(**given)


@pytest.mark.parametrize(("given", "line"), MISTAKES)
def test_a_mistake_shows_before_the_first_stage(look, given, line):
    with pytest.raises(UserError, match=line):
        look(**given)


@pytest.mark.parametrize(
    ("flags", "is_right"), [("--num_processes 2", True), ("--num_processes 1", False)]
)
def test_a_sweep_is_checked_on_the_processes_of_its_runs(tmp_path, monkeypatch, flags, is_right):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(host, "is_installed", lambda package: True)
    monkeypatch.setattr(host, "has_gpu", lambda: True)
    for check in ("check_packages", "check_file", "check_checkpoint", "check_held_out"):
        monkeypatch.setattr(f"stages.host.{check}", lambda *_, **__: None)
    file = f"{demo.ROOT}/configs/accelerate/ddp.yaml"
    words = [sys.executable, "-m", "stages.run.launch", "--config_file", file, *flags.split(), "-m"]
    args = sweep.SweepArguments(
        grpo_config=f"{GRPO7B}/grpo.yaml", run=str(tmp_path), sweep=["beta=0.1"],
        keys=["grpo.vllm_tensor_parallel_size=2"], launcher=shlex.join(words),
    )  # fmt: skip
    runs = sweep.combinations(args.sweep)
    if is_right:
        sweep.check(args, runs)
    else:
        with pytest.raises(UserError, match="2 does not divide 1 processes"):
            sweep.check(args, runs)
