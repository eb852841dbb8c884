"""What a run of the GRPO stage leaves behind, read back."""

import json

from pipeline.folders import CURVES
from tests.files import read_rows


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


# Pays for repetition, so that every step moves the weights; the guard looks at single tokens.
PAYS_FOR_LOOPS = {
    "reward_funcs": ["correctness_reward", "repetition_penalty"], "reward_weights": [0.0, -1.0],
    "repetition_ngram_size": 1, "guard_repetition_ngram": 1, "lr_scheduler_type": "constant",
    "guard_max_repetition": 0.9, "guard_no_signal": "off",  # a random model never ends
}  # fmt: skip
