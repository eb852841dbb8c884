"""The keys of a command line: which stage or tool has each, and its words.

`sft.max_length=1024` is `max_length` of the stage SFT, whatever the goal. Without a dot a key is
one of the goal: `make grpo learning_rate=1e-5`, `make plan gpu_memory=94`. Values are YAML. The
stage checks them.
"""

import functools
from collections.abc import Iterable, Mapping, Sequence

from pipeline.errors import UserError
from pipeline.key_types import Key, known_keys, own_keys
from pipeline.names import unknown
from pipeline.renamed import hint
from pipeline.stages import COMMANDS, STAGES, TRAINED, config_name, has_file, load, load_keys
from pipeline.words import VARIABLES, split_key

# RECIPE, RUN, LORA and the command itself say them.
TAKEN = ("output_dir", "run_dir", "config", "overlay", "keys", "opens_gate")
OPTIONS = {name: row.options for name, row in COMMANDS.items() if row.options}
OF_FILE = {config_name(stage): stage for stage in STAGES if STAGES[stage].arguments}
Keys = dict[str, dict[str, str]]  # by stage or tool, and by key: the text of the value


def assign(entries: Iterable[str], goals: Sequence[str] = (), recipe: str = "") -> Keys:
    """The keys of a command by the stage or tool that has them.

    Args:
        entries: such as `sft.max_length=1024`, or `max_length=1024` with the goal sft.
        goals: of the command.
        recipe: its folder; of one without a stage no key is taken.

    Raises:
        UserError: a stage, tool or key that is not known, or no value.
    """
    found: Keys = {}
    for entry in entries:
        stage, key, text = split_key(entry)
        if key == "env":
            raise UserError(f"{entry}: only a YAML has it; set the variable before the command")
        owner = named(entry, stage, recipe) if stage else of_goal(entry, key, goals)
        known = keys_of(owner)
        if key in VARIABLES and (owner in OPTIONS or key not in known):
            raise UserError(f"{entry}: is a variable; write {key.upper()}={text}")
        # Results of other settings are not overwritten: another folder has theirs.
        if key in TAKEN and (owner, key) != ("eval", "output_dir"):
            raise UserError(f"{entry}: the command sets {key}; leave it out, or give RECIPE or RUN")
        if key not in known:
            having = having_key(key)
            remedy = hint(key, known, "leave it out")
            if having and not stage:
                remedy = f"with a goal that runs {having[0]} write {having[0]}.{entry}"
            raise UserError(f"{entry}: {owner} has no key {key!r}; {remedy}")
        if found.setdefault(owner, {}).setdefault(key, text) != text:
            raise UserError(f"{entry}: {owner}.{key} is given twice; remove one")
    return found


def named(entry: str, name: str, recipe: str) -> str:
    """The stage or tool before the dot; a stage's YAML may be named, too."""
    owner = OF_FILE.get(name, name)
    owners = [*OF_FILE.values(), *OPTIONS]
    if owner not in owners:
        raise UserError(f"{entry}: {unknown('stage', name, owners)}")
    if owner in OF_FILE.values() and recipe and not has_file(owner, recipe):
        raise UserError(f"{entry}: {recipe} has no {config_name(owner)}.yaml; leave it out")
    return owner


def of_goal(entry: str, key: str, goals: Sequence[str]) -> str:
    """The one goal, which a key without a dot is of."""
    owners = [goal for goal in goals if goal in OF_FILE.values() or goal in OPTIONS]
    if len(owners) == 1 == len(goals):
        return owners[0]
    having = having_key(key)
    if not having:
        raise UserError(f"{entry}: no stage has it; {hint(key, all_keys(), 'see --help')}")
    why = f"with {' and '.join(goals) or 'no goal'} a key needs its stage"
    remedy = " or ".join(f"{stage}.{entry}" for stage in having)
    vary = f', or SWEEP="{entry}" to vary it' if goals == ("sweep",) else ""
    raise UserError(f"{entry}: {why}; write {remedy}{vary}")


def having_key(key: str) -> list[str]:
    """The stages that have a key, of those that train only these; else the tools."""
    having = [stage for stage in OF_FILE.values() if key in keys_of(stage)]
    having = [stage for stage in having if stage in TRAINED] or having
    return having or [tool for tool in OPTIONS if key in keys_of(tool)]


@functools.cache
def keys_of(owner: str) -> Mapping[str, Key]:
    """The keys of a stage's YAML, or the options of a tool."""
    if owner in OPTIONS:
        return own_keys(load(OPTIONS[owner]))
    own, hf, _ = load_keys(owner)
    return known_keys(own, hf)


def all_keys() -> list[str]:
    """The keys of all stages and tools, of the trained ones first."""
    owners = sorted(OF_FILE.values(), key=lambda stage: stage not in TRAINED)
    return list(dict.fromkeys(key for one in (*owners, *OPTIONS) for key in keys_of(one)))


def as_entries(keys: Keys) -> list[str]:
    """The keys of stages as words of a tool that reads whole recipes: `grpo.top_p=0.8`."""
    stages = [stage for stage in keys if stage in OF_FILE.values()]
    return [f"{stage}.{key}={text}" for stage in stages for key, text in keys[stage].items()]


def flags(keys: Keys, owner: str) -> list[str]:
    """The keys of a stage or tool as words of its command: `["--top_p", "0.8"]`.

    A list may be written without brackets: `tasks=math500,aime24`.
    """
    return as_flags({key: parts(owner, key, text) for key, text in keys.get(owner, {}).items()})


def as_flags(values: Mapping[str, Sequence[str]]) -> list[str]:
    """Keys with the words behind them, as one command line."""
    return [word for key, words in values.items() for word in (f"--{key}", *words)]


def parts(owner: str, key: str, text: str) -> list[str]:
    """The words of a value: one, or those of a list that is written without brackets."""
    is_list = "list" in keys_of(owner)[key].kinds and not text.startswith("[")
    return text.split(",") if is_list else [text]


def yaml_flags(entries: Iterable[str], recipe: str, file: str) -> list[str]:
    """Of `as_entries`: those of one YAML file, such as "grpo", as words of its stage."""
    return flags(assign(entries, recipe=recipe), OF_FILE[file])
