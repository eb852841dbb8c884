"""The key that makes the GRPO update skip padding; see `stages.trainer.packed_update`."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class UpdateArguments:
    """Keys of `grpo.yaml` on how the update runs its forward passes."""

    update_tokens: int | None = field(
        default=None,
        metadata={
            "help": "tokens, padding included, of one forward pass of the update: rows of similar "
            "length go through the model together; unset: all rows padded to the longest, as TRL"
        },
    )

    def __post_init__(self) -> None:
        if self.update_tokens is not None and self.update_tokens < 1:
            raise ValueError(
                f"update_tokens: {self.update_tokens} must be at least 1; the length of the "
                "longest prompt and completion is a good start"
            )
