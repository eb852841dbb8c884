"""What a run of the GRPO stage leaves behind, and trainers that write down what they do.

The recorders note what they generate and train on; graders by checksum stand for a model of noise.
"""

import json
import os
import random
import signal
import sys
import zlib
from pathlib import Path

from pipeline.folders import CURVES, place_named
from tests.files import read_rows, write_rows

SIZE = 4  # rollouts in a group, in all recipes here
# Pays for repetition, so that every step moves the weights; the guard looks at single tokens.
PAYS_FOR_LOOPS = {
    "reward_funcs": ["correctness_reward", "repetition_penalty"], "reward_weights": [0.0, -1.0],
    "repetition_ngram_size": 1, "guard_repetition_ngram": 1, "lr_scheduler_type": "constant",
    "guard_max_repetition": 0.9, "guard_no_signal": "off",  # a random model never ends
}  # fmt: skip


def read_history(folder):
    return json.loads((folder / "trainer_state.json").read_text())["log_history"]


def read_logs(folder):
    """The log of every training step."""
    return [log for log in read_history(folder) if "loss" in log]


def read_events(folder):
    path = folder / "events.jsonl"
    return read_rows(path) if path.is_file() else []


def read_extra(folder, step):
    """The state of curriculum and guards in a checkpoint, and how much was generated."""
    return json.loads((folder / f"checkpoint-{step}" / "extra_state.json").read_text())


def whole_checkpoints(folder):
    """Steps of the checkpoints that are marked as complete, ascending."""
    return sorted(int(p.parent.name[11:]) for p in folder.glob("checkpoint-*/files.json"))


def weights_of(folder):
    return (folder / "model.safetensors").read_bytes()


def steps_of(folder):
    """The steps that TensorBoard shows of a metric of the run's one curve."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    curve = folder.parent / CURVES / folder.resolve().name
    return [event.step for event in EventAccumulator(str(curve)).Reload().Scalars("train/loss")]


def without(log, *keys):
    return {key: value for key, value in log.items() if key not in keys}


# Recorders


def checksum(text):
    return zlib.crc32(text.encode())


def kind_of(question):
    """What the problem's groups are like: always right, always wrong, or mixed."""
    return ("right", "wrong", "mixed", "mixed")[checksum(question) % 4]


def is_right(question, completion):
    kind = kind_of(question)
    return kind == "right" or (kind == "mixed" and checksum(completion) % 2 == 1)


def hashed_rollout(prompt_ids, number):
    """Three to ten tokens that prompt and number decide, whatever the weights are."""
    draw = random.Random(f"{prompt_ids} {number}")
    return [draw.randrange(5, 290) for _ in range(draw.randrange(3, 11))]


def record_batches():
    """Set up a process whose rollouts are hashed, and which notes what each generation batch was.

    A batch is a line of `<place>.rank<n>.jsonl`.
    """
    from trl import GRPOTrainer

    from grading.grade import Grade
    from stages import rewards
    from stages.trainer import grpo_trainer

    steps, rounds, golds_seen = [], [], []
    score = GRPOTrainer._generate_and_score_completions
    calculate = GRPOTrainer._calculate_rewards

    def grade_rollouts(completions, golds, forms, questions, **_):
        golds_seen[:] = zip(questions, golds, strict=True)
        found = [is_right(*pair) for pair in zip(questions, completions, strict=True)]
        return [Grade("right" if right else "wrong", None) for right in found]

    def generate(self, prompt_ids, *args):
        return [hashed_rollout(ids, n % SIZE) for n, ids in enumerate(prompt_ids)], None

    def spy_calculate(self, inputs, prompts, completions, ids):
        values = calculate(self, inputs, prompts, completions, ids)
        ids = [row["id"] for row in inputs]
        texts = [completion[-1]["content"] for completion in completions]
        pairs = [[question, gold] for question, gold in golds_seen]
        rounds.append({"ids": ids, "rewards": values.tolist(), "texts": texts, "golds": pairs})
        return values

    def spy_score(self, inputs):
        output = score(self, inputs)
        rounds[-1] |= {"rows": rows_of(output, self._tokenizer), "keys": sorted(output)}
        rounds[-1]["shape"] = [output["prompt_ids"].size(1), output["completion_ids"].size(1)]
        return output

    class Recorder(grpo_trainer.MathGRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            rounds.clear()
            output = super()._generate_and_score_completions(inputs)
            columns = {"advantage": self._logs["advantages"]} | self._logs["rewards"]
            columns |= self._logs["extra"]
            columns |= {key: self._logs[key] for key in ("prompt", "completion")}
            steps.append(
                {
                    "rounds": list(rounds),
                    "rows": rows_of(output, self._tokenizer),
                    "keys": sorted(output),
                    "advantages": output["advantages"].tolist(),
                    "num_items": output["num_items_in_batch"].item(),
                    "num_completions": self.num_completions,
                    "table": {name: list(values) for name, values in columns.items()},
                }
            )
            return output

        def train(self, *args, **kwargs):
            output = super().train(*args, **kwargs)
            write_rows(file_of(self.args), steps)
            return output

    rewards.grade_rollouts = grade_rollouts
    GRPOTrainer._generate_single_turn, GRPOTrainer._calculate_rewards = generate, spy_calculate
    GRPOTrainer._generate_and_score_completions = spy_score
    grpo_trainer.MathGRPOTrainer = Recorder


def rows_of(output, tokenizer):
    """Rows without padding: prompt and completion ids, and log-probs where TRL keeps them."""
    rows = []
    masks = [output[f"{name}_mask"].bool() for name in ("prompt", "completion")]
    for mask, name, is_left in zip(masks, ("prompt", "completion"), (True, False), strict=True):
        assert (output[f"{name}_ids"][~mask] == tokenizer.pad_token_id).all()
        order = mask.long() if is_left else mask.long().flip(1)
        assert (order.diff(dim=1) >= 0).all(), "a hole in the mask"
        assert output[f"{name}_mask"].sum(dim=1).min() > 0
    for n in range(len(masks[0])):
        row = {"prompt": output["prompt_ids"][n][masks[0][n]].tolist()}
        row["completion"] = output["completion_ids"][n][masks[1][n]].tolist()
        row["text"] = tokenizer.decode(row["completion"], skip_special_tokens=True)
        for key in ("old_per_token_logps", "ref_per_token_logps"):
            if key in output:
                row[key] = output[key][n][masks[1][n]].tolist()
        rows.append(row)
    return rows


def file_of(args):
    """Where a process notes what it does: beside the run's place, for all runs of that."""
    return Path(f"{place_named(Path(args.output_dir))}.rank{args.process_index}.jsonl")


def grade_by_checksum(completions, *_, **__):
    """In place of `stages.rewards.grade_rollouts`: the model writes noise, and half of it is right.

    Which half is a matter of every single character.
    """
    from grading.grade import Grade

    return [Grade("right" if checksum(text) % 2 else "wrong", None) for text in completions]


class Seen:
    """Extra state: the ids of all problems that completions were generated for."""

    def __init__(self):
        self.ids = []

    def state_dict(self):
        return {"ids": self.ids}

    def load_state_dict(self, state):
        self.ids = state["ids"]


def record_micro_steps():
    """Set up a process that notes its steps, and kills itself where the variable DIE says.

    A micro-step is a line of `<place>.rank<n>.jsonl`: number, ids of the loader's problems,
    completions used, loss. Completions are right by their checksum.
    """
    from accelerate.utils import gather_object

    from stages import rewards
    from stages.trainer import grpo_trainer

    class Recorder(grpo_trainer.MathGRPOTrainer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.seen = self.extra_state["seen"] = Seen()

        def die_at(self, place):
            if os.environ.get("DIE") == f"{place} {self.state.global_step}":
                os.kill(os.getpid(), signal.SIGKILL)

        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            self.die_at("generating" if self.model.training else "evaluating")
            return output

        def _calculate_rewards(self, inputs, *args):
            self.seen.ids += gather_object([row["id"] for row in inputs[:: self.num_generations]])
            return super()._calculate_rewards(inputs, *args)

        def training_step(self, model, inputs, num_items_in_batch):
            step, ids = self._step, [row["id"] for row in inputs]
            loss = super().training_step(model, inputs, num_items_in_batch)
            used = self._buffered_inputs[step % self.args.steps_per_generation]["completion_ids"]
            with file_of(self.args).open("a") as file:
                file.write(json.dumps([step, ids, used.tolist(), loss.item()]) + "\n")
            return loss

        def _save_rng_state(self, output_dir):
            self.die_at("saving")  # weights and optimizer are written
            super()._save_rng_state(output_dir)

        def _save_checkpoint(self, model, trial):
            super()._save_checkpoint(model, trial)
            self.die_at("saved")

    rewards.grade_rollouts = grade_by_checksum
    grpo_trainer.MathGRPOTrainer = Recorder


def tell(*values):
    """A line of its own in the log of this process, wherever the progress bar is."""
    sys.stdout.write("\n" + " ".join(map(str, values)) + "\n")


def reporting(base, *keys):
    """A trainer that prints of each step: its number, a checksum of the weights, what it logs."""

    class Reporting(base):
        def report(self, *values):
            line = [self.state.global_step, weights_checksum(self.model), *values]
            tell("report", json.dumps(line))

        def log(self, logs, *args):
            super().log(logs, *args)
            if "loss" in logs:
                self.report(*[float(logs[key]) for key in keys])

    return Reporting


def reports_of(logs):
    """What each process has reported, line by line."""
    return [[json.loads(line[7:]) for line in log if line.startswith("report ")] for log in logs]


def weights_checksum(model):
    """A number that changes with every bit of the weights and with their order."""
    import torch

    weights = torch.cat([p.detach().flatten() for p in model.parameters()])
    bits = weights.view(torch.int32).to(torch.int64)
    return (bits * torch.arange(1, len(bits) + 1)).sum().item()
