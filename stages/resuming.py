"""What a killed run would lose, by the keys of its checkpoints: said before it is killed."""

from typing import Any


def why_not_resumed(settings: Any) -> tuple[str, str]:
    """What a killed run would lose by its keys alone, and the remedy; empty where it resumes.

    `settings`: a recipe's, or Hugging Face's training arguments.
    """
    if settings.save_strategy == "no":
        return (
            "save_strategy: no: there are no checkpoints, so a killed run starts from scratch",
            "use steps",
        )
    if settings.save_only_model:
        return (
            "save_only_model: true: checkpoints hold weights alone, so a killed run cannot resume",
            "remove it",
        )
    if settings.ignore_data_skip:
        return (
            "ignore_data_skip: true: a resumed run trains again on the first rows of its epoch",
            "remove it",
        )
    return "", ""


def why_restarted(args: Any, state: Any) -> tuple[str, str]:
    """The same as training begins, when the number of steps is known.

    Args:
        args, state: the Trainer's.
    """
    what = "the only checkpoint is the last one, so a killed run starts from scratch"
    if args.save_strategy == "steps" and state.save_steps >= state.max_steps:
        return f"save_steps: {state.save_steps:g}: {what}", "lower it"
    if args.save_strategy == "epoch" and state.num_train_epochs <= 1:
        return f"save_strategy: epoch: {what}", "use steps"
    return why_not_resumed(args)
