"""Contract: what `stages.trainer.eval_trainer` leans on in TRL, transformers and torch."""

import inspect

import pytest

pytestmark = pytest.mark.integration


def names_of(function):
    return list(inspect.signature(function).parameters)


def in_order(source, *steps):
    """Whether each step is in the source text, and its first place behind that of the last."""
    return all(step in source for step in steps) and (
        sorted(steps, key=source.index) == list(steps)
    )


def test_overridden_methods_keep_their_signatures():
    from trl import GRPOTrainer

    from stages.trainer.eval_trainer import EvaluatedGRPO

    prefix = "metric_key_prefix"
    arguments = {
        "train": ["resume_from_checkpoint", "trial", "ignore_keys_for_eval"],
        "evaluate": ["eval_dataset", "ignore_keys", prefix],
        "evaluation_loop": [
            "dataloader", "description", "prediction_loss_only", "ignore_keys", prefix,
        ],
        "prediction_step": ["model", "inputs", "prediction_loss_only", "ignore_keys"],
        "_calculate_rewards": ["inputs", "prompts", "completions", "completion_ids_list"],
    }  # fmt: skip
    for name, known in arguments.items():
        assert names_of(getattr(GRPOTrainer, name)) == ["self", *known]
    # Whatever else it defines is a name that nobody has.
    own = {name for name in vars(EvaluatedGRPO) if not name.startswith("__")}
    assert {name for name in own if hasattr(GRPOTrainer, name)} == arguments.keys()


def test_no_part_of_the_trainer_hides_a_method_of_another():
    from trl import GRPOTrainer

    from stages.trainer.eval_trainer import EvaluatedGRPO
    from stages.trainer.grpo_trainer import MathGRPOTrainer

    parts = [part for part in MathGRPOTrainer.__mro__ if part.__module__.startswith("stages.")]
    own = {name for name in vars(EvaluatedGRPO) if not hasattr(GRPOTrainer, name)}
    assert len(parts) == 7
    for part in parts:
        assert part is EvaluatedGRPO or not own & vars(part).keys()


def test_what_the_loop_returns_is_logged_told_and_returned():
    """Our metrics go into the dictionary that TRL's `log` adds its own to."""
    from transformers import Trainer
    from transformers.trainer_utils import EvalLoopOutput
    from trl import GRPOTrainer

    assert "metrics" in EvalLoopOutput._fields
    source = inspect.getsource(Trainer.evaluate)
    assert in_order(
        source, "self.evaluation_loop(", "self.log(output.metrics)", "return output.metrics"
    )
    assert "logs.update(metrics)" in inspect.getsource(GRPOTrainer.log)
    # A step without loss, logits and labels leaves no trace.
    loop = inspect.getsource(Trainer.evaluation_loop)
    assert all(f"if {name} is not None:" in loop for name in ("losses", "logits", "labels"))


def test_only_the_models_mode_tells_an_evaluation_from_the_training():
    """And in it neither the buffer of completions nor the count of micro-steps is touched."""
    from transformers import Trainer
    from trl import GRPOTrainer

    loop = inspect.getsource(Trainer.evaluation_loop)
    assert in_order(loop, "model.eval()", "self.prediction_step(")
    mode = 'mode = "train" if self.model.training else "eval"'
    for method in ("_prepare_inputs", "_generate", "_generate_and_score_completions", "log"):
        assert mode in inspect.getsource(getattr(GRPOTrainer, method)), method
    prepare = inspect.getsource(GRPOTrainer._prepare_inputs)
    evaluation = prepare[prepare.rindex("else:") :]
    assert "self._generate_and_score_completions(" in evaluation
    assert "_step" not in evaluation and "_buffered_inputs" not in evaluation
    assert "model.train()" in inspect.getsource(Trainer.training_step)


def test_the_table_of_completions_is_where_we_put_another():
    from trl import GRPOTrainer

    names = GRPOTrainer.__init__.__code__.co_names
    assert {"_logs", "log_completions", "eos_token_ids", "num_generations_eval"} <= {*names}
    log = inspect.getsource(GRPOTrainer.log)
    assert in_order(log, "self._metrics[mode].clear()", "and self.log_completions:", "to_parquet(")


def test_when_it_is_evaluated():
    """Between log and save, once at the start of any `train`, and after the last step."""
    from transformers import Trainer
    from transformers.trainer_callback import DefaultFlowCallback

    steps = ("self.log(logs", "self._evaluate(", "self._save_checkpoint(")
    assert in_order(inspect.getsource(Trainer._maybe_log_save_evaluate), *steps)
    loop = inspect.getsource(Trainer._inner_training_loop)
    assert in_order(loop, "on_train_begin(", "if args.eval_on_start:", "self._run_epoch(")
    end = inspect.getsource(DefaultFlowCallback.on_step_end)
    assert in_order(end, "should_training_stop = True", "state.global_step % state.eval_steps != 0")


def test_a_model_can_be_saved_without_going_to_the_hub():
    from transformers import Trainer

    assert names_of(Trainer.save_model) == ["self", "output_dir", "_internal_call"]
    source = inspect.getsource(Trainer.save_model)
    assert "if self.args.push_to_hub and not _internal_call:" in source


def test_defaults_are_trls():
    import dataclasses

    from trl import GRPOConfig

    from stages.settings.eval_arguments import DEFAULT_SIZE

    defaults = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}
    assert defaults["num_generations"] == defaults["per_device_eval_batch_size"] == DEFAULT_SIZE
    assert defaults["num_generations_eval"] is None and defaults["eval_strategy"] == "no"


def test_random_numbers_go_on_as_they_would_have():
    import random

    import numpy as np
    import torch

    from stages.trainer.eval_trainer import random_state_kept

    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    expected = draw()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    with pytest.raises(KeyError), random_state_kept(torch.device("cpu")):
        assert draw() == expected
        raise KeyError
    assert draw() == expected
