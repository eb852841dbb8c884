"""Optimizers and schedules: the tables are the libraries', and what is missing is refused."""

import ast

import pytest

from pipeline import manifest
from pipeline.settings import enum_values, find_source, source_classes
from stages.checks import check_grpo_keys, check_sft_keys
from stages.checks.common import check_packages
from stages.checks.optimizer import OPTIMIZERS, SCHEDULERS
from tests.unit.stages.helpers import grpo, named, sft


def test_every_optimizer_and_schedule_is_in_its_table():
    assert OPTIMIZERS.keys() == {*enum_values("OptimizerNames | str")}
    assert SCHEDULERS.keys() == {*enum_values("SchedulerType | str")}


def test_a_schedule_takes_what_its_function_does():
    """As their sources say, without torch."""
    tree = ast.parse(find_source("transformers", "optimization.py").read_text())
    names = {node.targets[0].id: ast.literal_eval(node.value)
             for node in source_classes("transformers", "trainer_utils.py")["SchedulerType"].body
             if isinstance(node, ast.Assign)}  # fmt: skip
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    [table] = [node.value for node in tree.body if isinstance(node, ast.Assign)
               and ast.unparse(node.targets[0]) == "TYPE_TO_SCHEDULER_FUNCTION"]  # fmt: skip
    given = {"optimizer", "num_warmup_steps", "num_training_steps", "last_epoch"}
    for key, function in zip(table.keys, table.values, strict=True):
        arguments = functions[function.id].args
        row = SCHEDULERS[names[key.attr]]
        if arguments.kwarg is None:
            assert {arg.arg for arg in arguments.args} - given == {*row.keys.split()}, key.attr
        if row.warms_up:
            assert "num_warmup_steps" in [arg.arg for arg in arguments.args]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_whose_package_is_missing_is_refused(name, monkeypatch):
    here = {"tensorboard"}
    monkeypatch.setattr(manifest, "versions", lambda names: dict.fromkeys(here & {*names}))
    for make in (sft, grpo):
        packages = OPTIMIZERS[name].packages
        assert named(check_packages, make({"optim": name})) == ("optim" if packages else None)
    here.update(packages)
    assert named(check_packages, sft({"optim": name})) is None


STEPS = {"num_decay_steps": 5}


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        *(({"lr_scheduler_type": name}, None) for name, row in SCHEDULERS.items()
          if not row.needs and row.warms_up),
        *(({"lr_scheduler_type": name}, "lr_scheduler_kwargs") for name, row in SCHEDULERS.items()
          if row.needs),
        ({"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {"num_cycles": 2}},
         "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": 2}}, None),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"cycles": 2}},
         "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "cosine", "lr_scheduler_kwargs": {"num_cycles": "x"}},
         "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "cosine_with_min_lr",
          "lr_scheduler_kwargs": {"min_lr": 1e-7}}, None),
        ({"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-2}},
         "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "cosine_with_min_lr",
          "lr_scheduler_kwargs": {"min_lr": 1e-7, "min_lr_rate": 0.1}}, "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "polynomial", "learning_rate": 1e-8}, "lr_scheduler_kwargs"),
        ({"lr_scheduler_type": "warmup_stable_decay", "lr_scheduler_kwargs": STEPS}, None),
        ({"lr_scheduler_type": "warmup_stable_decay",
          "lr_scheduler_kwargs": STEPS | {"decay_type": "steep"}}, "lr_scheduler_kwargs"),
        ({"optim": "galore_adamw"}, "optim_target_modules"),
        ({"optim": "galore_adamw", "optim_target_modules": "all-linear"}, None),
        ({"optim": "sgd", "optim_args": "momentum=0.9"}, None),
        ({"optim": "sgd", "optim_args": "momentum"}, "optim_args"),
    ],
)  # fmt: skip
def test_schedules_and_optimizers(values, refused):
    assert named(check_grpo_keys, grpo(values)) == refused
    assert named(check_sft_keys, sft(values)) == refused


@pytest.mark.parametrize("name", ["reduce_lr_on_plateau", "greedy"])
def test_a_schedule_that_follows_a_loss_needs_one(name):
    assert named(check_grpo_keys, grpo({"lr_scheduler_type": name})) == "lr_scheduler_type"
    assert named(check_sft_keys, sft({"lr_scheduler_type": name})) == "lr_scheduler_type"
