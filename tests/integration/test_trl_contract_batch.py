"""Contract: what TRL's trainer generates, keeps and calls, as `stages` takes it apart."""

import ast
import inspect
import json
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
HERE = Path(__file__).parent

# Every private name of TRL's trainer that our sources use, and the file that pins it.
PINNED = {
    "test_in_training_eval_contract.py": {"_prepare_inputs"},
    "test_trl_contract.py": {"_calculate_rewards", "_metrics"},
    "test_trl_contract_advantages.py": {"_get_grad_norm", "_get_per_token_logps_and_entropies"},
    "test_trl_contract_batch.py": {
        "_generate_and_score_completions", "_last_loaded_step", "_logs", "_save_checkpoint",
        "_tokenize_prompts", "_tokenizer",
    },
    "test_trl_contract_resume.py": {
        "_buffered_inputs", "_get_train_sampler", "_last_world_entropy",
        "_load_optimizer_and_scheduler", "_run_epoch", "_save_rng_state", "_step",
    },
    "test_trl_contract_update.py": {"_entropy_bonus_enabled"},
}  # fmt: skip


def names_in(source, only_self):
    """Attributes and functions of Python source; with `only_self` those of `self` alone."""
    found = set()
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.Attribute):
            is_self = isinstance(node.value, ast.Name) and node.value.id == "self"
            found |= {node.attr} if is_self or not only_self else set()
    return found


def test_every_private_name_is_pinned():
    """And no name of ours is by chance one of theirs."""
    from trl import GRPOTrainer

    theirs = set()
    for part in GRPOTrainer.__mro__[:-1]:
        theirs |= vars(part).keys() | names_in(inspect.getsource(part), only_self=True)
    sources = [path.read_text() for path in (HERE.parents[1] / "stages").glob("*.py")]
    ours = {name for source in sources for name in names_in(source, only_self=False)}
    private = {name for name in ours & theirs if name[0] == "_" != name[1]}
    assert private == {name for names in PINNED.values() for name in names}
    for file, names in PINNED.items():
        text = (HERE / file).read_text()
        assert all(text.count(name) > (file == Path(__file__).name) for name in names), file


def stock(**kwargs):
    """TRL's own trainer, from what the stage gives ours."""
    from trl import GRPOTrainer

    known = inspect.signature(GRPOTrainer).parameters
    trainer = GRPOTrainer(**{key: value for key, value in kwargs.items() if key in known})
    trainer.num_completions = None  # for the stage's manifest
    return trainer


ALWAYS = {
    "prompt_ids": ("int64", "BP"), "prompt_mask": ("int64", "BP"),
    "completion_ids": ("int64", "BC"), "completion_mask": ("int64", "BC"),
    "advantages": ("float32", "B"), "num_items_in_batch": ("int64", ""),
}  # fmt: skip
OLD, REFERENCE = ({f"{name}_per_token_logps": ("float32", "BC")} for name in ("old", "ref"))


@pytest.mark.usefixtures("graded_by_chance")
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({"advantage": "none"}, {}),
        ({"beta": 0.1, "gradient_accumulation_steps": 2}, REFERENCE),
        ({"beta": 0.1, "steps_per_generation": 2}, OLD | REFERENCE),
        ({"num_iterations": 2, "advantage": "batch"}, OLD),
    ],
)
def test_a_generation_batch(run_stage, monkeypatch, settings, more):
    """Keys, types and shapes; the table of completions; one value for each metric."""
    from trl import GRPOTrainer

    from stages.trainer import grpo_trainer

    score, seen = GRPOTrainer._generate_and_score_completions, []

    def spy(self, inputs):
        before = {name: len(values) for name, values in self._metrics["train"].items()}
        output = score(self, inputs)
        added = {
            name: len(values) - before.get(name, 0)
            for name, values in self._metrics["train"].items()
        }
        seen.append((self, inputs, output, added))
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    monkeypatch.setattr(grpo_trainer, "MathGRPOTrainer", stock)
    run_stage("grpo", **settings, max_completion_length=8, log_completions=True,
              num_completions_to_print=0)  # fmt: skip
    for trainer, inputs, output, added in seen:
        assert trainer.model.training and type(inputs) is list and type(inputs[0]) is dict
        assert {*inputs[0]} == {"id", "prompt", "answer"}
        assert trainer.train_dataset["id"][:3] == [f"synthetic-rl-{n}" for n in range(3)]
        args = trainer.args
        num = args.per_device_train_batch_size * args.steps_per_generation
        sizes = {"B": num, "P": output["prompt_ids"].size(1)}
        sizes["C"] = output["completion_ids"].size(1)
        shapes = {key: (str(x.dtype)[6:], [*x.shape]) for key, x in output.items()}
        known = ALWAYS | more
        assert shapes == {key: (t, [sizes[axis] for axis in s]) for key, (t, s) in known.items()}
        assert output["num_items_in_batch"] == output["completion_mask"].sum()

        tokenizer = trainer._tokenizer
        prompts, *_ = trainer._tokenize_prompts([row["prompt"] for row in inputs])
        for n, ids in enumerate(prompts):
            pad = [tokenizer.pad_token_id] * (sizes["P"] - len(ids))
            assert output["prompt_ids"][n].tolist() == pad + ids
            assert output["prompt_mask"][n].tolist() == [0] * len(pad) + [1] * len(ids)
            mask = output["completion_mask"][n].bool()
            assert not (mask[1:] & ~mask[:-1]).any() and mask[0]
            assert (output["completion_ids"][n][~mask] == tokenizer.pad_token_id).all()
        assert tokenizer.eos_token_id in trainer.eos_token_ids
        assert trainer.num_generations == trainer.num_generations_eval == 4
        assert trainer.reward_weights.tolist() == [1.0, 0.5, 1.0]
        assert trainer.reward_func_names == [
            "correctness_reward", "think_format_reward", "soft_length_penalty",
        ]  # fmt: skip
        assert trainer.scale_rewards == settings.get("advantage", "group")
        assert args.generation_batch_size == num * args.world_size
        for name in (
            "reward", "frac_reward_zero_std", "completions/mean_length",
            "completions/clipped_ratio", "rewards/correctness_reward/mean",
            "rollout/verdict/wrong",
        ):  # fmt: skip
            assert added[name] == 1, name
        assert len(trainer._metrics["train"].get("num_tokens", [0])) == 1

    # The table is that of the last batch, which has pushed the one before out.
    trainer, inputs, output, _ = seen[-1]
    logs = trainer._logs
    assert {*logs} == {"images", "prompt", "completion", "rewards", "advantages", "extra"}
    assert list(logs["prompt"]) == [row["prompt"] for row in inputs]
    texts = trainer._tokenizer.batch_decode(output["completion_ids"], skip_special_tokens=True)
    assert [completion[-1]["content"] for completion in logs["completion"]] == texts
    assert [*logs["rewards"]] == trainer.reward_func_names and [*logs["extra"]] == ["verdict"]
    assert list(logs["advantages"]) == output["advantages"].tolist()
    columns = [logs["prompt"], logs["completion"], logs["advantages"]]
    for column in (*columns, *logs["rewards"].values(), *logs["extra"].values()):
        assert column.maxlen == len(column) == len(inputs)
    assert not logs["images"]


def test_calls_around_a_step_and_a_second_train(run_stage, monkeypatch, tmp_path):
    """Their order, what callbacks are given, and that a checkpoint of step 0 is one."""
    import torch
    from transformers import TrainerCallback
    from trl import GRPOTrainer

    from stages import run
    from stages.trainer import grpo_trainer

    events, folder = [], tmp_path / "grpo"

    class Calls(TrainerCallback):
        def __init__(self, trainer):
            self.trainer, self.num_begun = trainer, 0

        def on_train_begin(self, args, state, control, **_):
            events.append(("begin", state.global_step))
            self.num_begun += 1
            if self.num_begun == 1:
                self.trainer._save_checkpoint(self.trainer.model, None)

        def on_pre_optimizer_step(self, args, state, control, optimizer=None, model=None, **_):
            assert all(group["lr"] > 0 for group in optimizer.param_groups)
            assert all(p.grad is not None for p in model.parameters())
            events.append(("pre", state.global_step))

        def on_optimizer_step(self, args, state, control, model=None, **_):
            assert all(p.grad is not None for p in model.parameters())
            assert not self.trainer.accelerator.optimizer_step_was_skipped
            events.append(("post", state.global_step))

        def on_step_end(self, args, state, control, **_):
            events.append(("end", state.global_step))
            if self.num_begun == 1:
                control.should_training_stop = True

    def note(owner, name, event):
        method = getattr(owner, name)

        def noted(self, *args, **kwargs):
            events.append((event,))
            return method(self, *args, **kwargs)

        monkeypatch.setattr(owner, name, noted)

    note(GRPOTrainer, "_get_grad_norm", "norm")
    note(torch.optim.AdamW, "step", "step")
    note(GRPOTrainer, "_save_checkpoint", "save")
    note(GRPOTrainer, "_load_optimizer_and_scheduler", "load")
    note(GRPOTrainer, "log", "log")

    def train(trainer, *_):
        trainer.add_callback(Calls(trainer))
        trainer.train()
        assert trainer.state.global_step == 1
        trainer.train(resume_from_checkpoint=str(folder / "checkpoint-0"))
        assert trainer.state.global_step == 2
        run.save(trainer)

    monkeypatch.setattr(grpo_trainer, "MathGRPOTrainer", stock)
    monkeypatch.setattr(run, "train", train)
    run_stage("grpo", save_steps=1, max_completion_length=4, lr_scheduler_type="constant")
    step = ["norm", "pre", "step", "post", "end", "log", "save"]
    found = [event for event, *_ in events]
    # The last log of a run has its totals.
    assert found == ["begin", "save", *step, "log", "load", "begin", *step, *step, "log"]
    numbers = [number for _, *numbers in events for number in numbers]
    assert numbers == [0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 2]
    for n in range(3):
        state = json.loads((folder / f"checkpoint-{n}" / "trainer_state.json").read_text())
        assert state["global_step"] == n


def test_vllm_is_given_weights_of_another_step_only():
    """Why a roll-back resets `_last_loaded_step`."""
    from trl import GRPOTrainer

    source = inspect.getsource(GRPOTrainer._generate_single_turn)
    assert "if self.state.global_step != self._last_loaded_step:" in source
    assert "self._last_loaded_step = self.state.global_step" in source
    assert "self._last_loaded_step = -1" in inspect.getsource(GRPOTrainer.__init__)
