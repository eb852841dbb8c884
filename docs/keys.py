"""Write the reference of our own keys, docs/keys.md: `python -m docs.keys`.

The dataclasses that read the YAML files have the keys, their defaults and their help.
"""

from pathlib import Path

from data_prep.sampling import SamplingArguments
from pipeline.key_types import UNSET, Key, own_keys
from pipeline.stages import STAGES, Stage, config_name, load
from stages.arguments import DEFAULTS
from stages.trainer.guards import RULES

PAGE = Path(__file__).with_name("keys.md")
HEAD = """# Keys

Each stage reads one flat YAML file, `configs/<recipe>/<stage>.yaml`. These are our own keys.
`.venv/bin/python -m stages.grpo --help` prints those of TRL and transformers too, with their types.
An unknown key is an error, and `null` restores a default ([which value
wins](commands.md#change-one-key)). Every YAML also takes `env`, a mapping of environment variables
for speed and logging; others need `ALLOW_CODE=1`.
"""
HUGGING_FACE = """
Also all keys of TRL's `{}` and `{}`. Our defaults differ for {}.
"""
SAMPLING = """
## Sampling

`difficulty.yaml`, `distill.yaml` and `eval.yaml` take these keys. Their own sections
list what they add, and other defaults.
"""
GUARDS = """
### Guards

[Guards](grpo.md#guards) watch a run for signs of collapse. The key of each, such as
`guard_repetition`, takes `off`, `warn` (the default), `stop` or, but for `no_signal`, `rollback`.
"""


def shown(value: object) -> str:
    """A default as it would be in the YAML."""
    if value is UNSET:
        return "required"
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def table(keys: dict[str, Key]) -> str:
    """A table of keys; those that are required come first."""
    lines = ["", "|key|default|meaning|", "|---|---|---|"]
    for name, key in sorted(keys.items(), key=lambda one: one[1].default is not UNSET):
        meaning = key.meaning.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"|`{name}`|{shown(key.default)}|{meaning}|")
    return "\n".join(lines) + "\n"


def is_other(key: Key, shared: Key | None) -> bool:
    """Whether a key has another default or meaning than that of all sampling stages."""
    return shared is None or (key.default, key.meaning) != (shared.default, shared.meaning)


def section(name: str, stage: Stage) -> str:
    """The section on the YAML of one stage."""
    own, sampling = load(stage.arguments), own_keys(SamplingArguments)
    keys = own_keys(own)
    if issubclass(own, SamplingArguments):
        keys = {name: key for name, key in keys.items() if is_other(key, sampling.get(name))}
    guards = {key: value for key, value in keys.items() if key.startswith("guard_")}
    limits = {key: guards[key] for key in guards if key.removeprefix("guard_") not in RULES}
    text = f"\n## {config_name(name)}.yaml\n\nThe stage `{name}`: {stage.meaning}.\n"
    if stage.hf:
        ours = " and ".join(f"`{key}: {str(value).lower()}`" for key, value in DEFAULTS.items())
        text += HUGGING_FACE.format(*stage.hf, ours)
    text += table({key: value for key, value in keys.items() if key not in guards})
    return text + (GUARDS + table(limits) if guards else "")


def page() -> str:
    """The whole page."""
    stages = {name: stage for name, stage in STAGES.items() if stage.arguments}
    sections = [section(name, stage) for name, stage in stages.items()]
    return HEAD + "".join(sections) + SAMPLING + table(own_keys(SamplingArguments))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
