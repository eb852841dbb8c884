"""Contract: what `stages.trainer.exact_resume` leans on in TRL and transformers."""

import inspect

import pytest

pytestmark = pytest.mark.integration


def names_of(function):
    return list(inspect.signature(function).parameters)


def in_order(source, *steps):
    """Whether each step is in the source text, once, and after the one before it."""
    return all(source.count(step) == 1 for step in steps) and (
        sorted(steps, key=source.index) == list(steps)
    )


def test_overridden_methods_keep_their_signatures():
    from transformers import Trainer
    from trl import GRPOTrainer

    from stages.trainer.exact_resume import ExactResume

    assert names_of(Trainer._save_rng_state) == ["self", "output_dir"]
    assert names_of(GRPOTrainer._load_optimizer_and_scheduler) == ["self", "checkpoint"]
    assert names_of(GRPOTrainer._get_train_sampler) == ["self", "dataset"]
    for name in ("_save_rng_state", "_load_optimizer_and_scheduler", "_get_train_sampler"):
        assert names_of(getattr(ExactResume, name)) == names_of(getattr(GRPOTrainer, name))
    assert "_run_epoch" in Trainer._inner_training_loop.__code__.co_names


def test_sampler_takes_and_keeps_what_we_copy():
    from trl.trainer.utils import RepeatSampler

    arguments = ["mini_repeat_count", "batch_size", "repeat_count", "shuffle", "seed"]
    assert names_of(RepeatSampler.__init__) == ["self", "data_source", *arguments]
    sampler = RepeatSampler(range(3), mini_repeat_count=2)
    assert {"data_source", "num_samples", "generator", *arguments} == vars(sampler).keys()
    # Else the order of the problems would be TRL's to change.
    assert "randperm(self.num_samples, generator=self.generator)" in inspect.getsource(
        RepeatSampler.__iter__
    )


def test_trainer_state_is_written_behind_our_files_and_read_before_them():
    """The order of calls that makes a marked checkpoint whole, and a restored counter last."""
    from transformers import Trainer

    save = inspect.getsource(Trainer._save_checkpoint)
    assert in_order(save, "self.save_model(", "self._save_rng_state(", "self.state.save_to_json(")
    loop = inspect.getsource(Trainer._inner_training_loop)
    assert in_order(
        loop, "self._init_training_state(", "self._prepare_for_training(", "self._run_epoch("
    )
    assert "self.state = TrainerState.load_from_json(" in inspect.getsource(
        Trainer._init_training_state
    )
    # Outside every branch that names an engine.
    prepare = inspect.getsource(Trainer._prepare_for_training)
    assert "\n            self._load_optimizer_and_scheduler(resume_from_checkpoint)" in prepare


def test_counter_and_buffer_mean_what_we_take_them_for():
    from trl import GRPOTrainer

    names = GRPOTrainer.__init__.__code__.co_names
    mine = ("_step", "_buffered_inputs", "_metrics", "num_iterations", "use_adaptive_entropy")
    assert {*mine, "entropy_coef", "_last_world_entropy"} <= {*names}
    prepare = inspect.getsource(GRPOTrainer._prepare_inputs)
    assert "generate_every = self.args.steps_per_generation * self.num_iterations" in prepare
    assert "if self._step % generate_every == 0 or self._buffered_inputs is None:" in prepare
    assert "self._buffered_inputs[self._step % self.args.steps_per_generation]" in prepare
    # Nowhere else are they set: what is restored before the first step stays.
    source = inspect.getsource(GRPOTrainer)
    assert source.count("self._step = ") == source.count("self._step += ") == 1
    assert source.count("self._buffered_inputs = ") == 2


def test_trl_still_forgets():
    """Where this fails TRL has learned something, and less of `ExactResume` is needed."""
    from transformers import Trainer
    from trl import GRPOTrainer
    from trl.trainer.utils import RepeatSampler

    for method in (GRPOTrainer._save_checkpoint, GRPOTrainer._load_optimizer_and_scheduler):
        source = inspect.getsource(method)
        assert not any(name in source for name in ("self._step", "_buffered_inputs", "_metrics"))
    assert not hasattr(RepeatSampler, "set_epoch")
    # The end is looked for after a step only.
    assert ">= self.state.max_steps" not in inspect.getsource(Trainer._run_epoch)
