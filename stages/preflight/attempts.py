"""A training stage built narrow, with the user's keys: one step, one save, one resume on a CPU.

The objects are TRL's, transformers', peft's and ours, built by the stage's own functions. Only the
model is narrow, the rows few and the device a CPU. So each library says by itself what it refuses.

    Rehearsal.raised    what was raised: a line with the key, by the text, else by bisection
    Rehearsal.unread    keys that nobody has read: they have no effect
"""

import contextlib
import io
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.console import one_line
from pipeline.key_types import own_keys
from pipeline.stages import load_keys
from stages.preflight import narrow, reads
from stages.run.launch import DATA_PARALLEL


@dataclass
class Found:
    """What a rehearsal has shown, each a line that begins with a key where one is known."""

    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # these refuse nothing


class Rehearsal:
    """One stage: its keys as they were typed, and the folder in which it is tried.

    Args:
        model: what its weights come from at first.
        typed: keys of the command line or an overlay, which come last in a bisection.
        processes: of the launch; one of them is tried, with its share of the rows.
        engine: of the launch, as `asked_engine` names it.
        is_raw: whether rows that are made have raw prompts.
    """

    def __init__(
        self,
        stage: str,
        values: Mapping[str, Any],
        model: str,
        folder: Path,
        typed: frozenset[str] = frozenset(),
        processes: int = 1,
        engine: str = DATA_PARALLEL,
        is_raw: bool = False,
    ) -> None:
        self.stage, self.model, self.folder, self.typed = stage, model, folder, typed
        self.processes, self.start = processes, ""
        self.is_resumed = False  # how far the last attempt has come
        self.unused: list[str] = []  # arguments that the optimizer of the last attempt did not take
        # In the order of a bisection: switches before what they switch on, what was typed last.
        order = sorted(values, key=lambda key: (key in typed, values[key] is not True))
        self.values = {key: values[key] for key in order}
        if "DeepSpeed" in engine and values.get("dtype") == "float16":
            del self.values["dtype"]  # it updates float32 copies
        fits = narrow.has_tokenizer(model) and not values.get("packing")
        file = values.get("train_file") if fits else ""
        self.rows, self.is_made = narrow.few_rows(file, stage, is_raw)

    def prepare(self) -> None:
        """Write the narrow model, once for all attempts."""
        trusts = bool(self.values.get("trust_remote_code"))
        self.start = narrow.write_start(self.model, self.folder / "start", trusts)

    def inputs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The files that a stage reads, with few rows, and limits that fit these rows."""
        found: dict[str, Any] = {}
        found["train_file"] = narrow.write_rows(self.folder / "train.jsonl", self.rows)
        if values.get("eval_file"):
            rows = narrow.held_out_rows(self.rows, self.stage)
            found["eval_file"] = narrow.write_rows(self.folder / "held_out.jsonl", rows)
        if values.get("pass_rates"):
            rows = narrow.pass_rates(self.rows, values)
            found["pass_rates"] = narrow.write_rows(self.folder / "rates.jsonl", rows)
        if self.is_made and values.get("max_prompt_length"):  # the tiny tokenizer splits more
            found["max_prompt_length"] = max(values["max_prompt_length"], 256)
        if self.stage == "sft" and values.get("max_length"):
            found["max_length"] = 256 if self.is_made else narrow.MOST_CHARACTERS
        return found

    def attempt(self, values: Mapping[str, Any], resumes: bool = True) -> None:
        """One step, evaluation, save and resume of the stage with these keys; raises what fails."""
        self.is_resumed = False
        for name in ("out", "out.tokens"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        planned = narrow.on_cpu(values, self.start, self.folder) | self.inputs(values)
        classes = reads.classes_of(self.stage)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            reads.make(classes, planned | self.share(planned))  # the user's own numbers
            self.train(reads.make(classes, narrow.small(planned, self.stage, steps=1)), None)
            checkpoint = self.folder / "out/checkpoint-1"
            is_whole = (checkpoint / "files.json").is_file()
            if resumes and is_whole and not planned.get("save_only_model"):
                self.is_resumed = True
                again = reads.make(classes, narrow.small(planned, self.stage, steps=2))
                self.train(again, str(checkpoint))

    def share(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The rows of a generation that one process has, which must be whole groups."""
        rows = values.get("generation_batch_size")
        return {"generation_batch_size": rows // self.processes} if rows else {}

    def train(self, keys: list[Any], checkpoint: str | None) -> None:
        """Build the stage's trainer as its `main` does, train, save."""
        from stages.grpo import blamed_curriculum
        from stages.run import training

        args, config, model = keys
        build = build_sft if self.stage == "sft" else build_grpo
        trainer = build(args, config, model)
        with blamed_curriculum(getattr(args, "curriculum", ""), trainer):
            training.train(trainer, self.stage, checkpoint)
        training.save(trainer)
        self.unused = unused_arguments(trainer) if self.values.get("optim_args") else []

    def error_of(self, values: Mapping[str, Any], resumes: bool = True) -> Exception | None:
        """What an attempt raises."""
        try:
            self.attempt(values, resumes)
        except Exception as error:  # other people's checks: what is wrong decides what is raised
            return error
        return None

    def raised(self) -> Iterator[tuple[str | None, str]]:
        """The key, if it is known, and a line for each error, each without the keys before."""
        without: list[str] = []
        while error := self.error_of(self.values):
            key, line = self.explain(error)
            yield key, f"{line} (without {', '.join(without)})" if without else line
            if key is None or key not in self.values:
                return
            del self.values[key]
            without.append(key)

    def explain(self, error: Exception) -> tuple[str | None, str]:
        """The key that an error is about, and one line with key, value and the error's words."""
        text = str(error).replace(self.start, self.model).replace(str(self.folder), "…")
        text = " ".join(text.split())
        if isinstance(error, KeyError | IndexError | AttributeError | NameError) or not text:
            text = f"{type(error).__name__}: {text}"
        first = text.partition(":")[0]
        # Ours begin with the key. The model is narrow: what is wrong with it is another key's.
        if first in self.values and first != "model_name_or_path":
            return first, text
        key = self.named(text) or self.culprit(error)
        return key, f"{key}: {self.values[key]!r}: {text}" if key else text

    def named(self, text: str) -> str | None:
        """The one key of which the text has the name, else the one of which it has the value."""

        def has(word: Any) -> bool:
            return re.search(rf"(?<![\w.]){re.escape(str(word))}(?!\w)", text) is not None

        keys = [key for key in self.values if key != "model_name_or_path"]  # a narrow model's
        by_name = [key for key in keys if has(key)]
        by_value = [key for key in keys if any(map(has, words_of(self.values[key])))]
        for found in (by_name, by_value):
            typed = [key for key in found if key in self.typed]
            for one in (found, typed):
                if len(one) == 1:
                    return one[0]
        return None

    def culprit(self, error: Exception) -> str | None:
        """The last key of the fewest first keys that fail alike; None where all is as without."""
        keys, resumes = list(self.values), self.is_resumed

        def fails(number: int) -> bool:
            found = self.error_of({key: self.values[key] for key in keys[:number]}, resumes)
            return (type(found), str(found)) == (type(error), str(error))

        low, high = 0, len(keys)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fails(middle) else (middle, high)
        is_without_keys = high <= 1 and fails(0)
        return None if is_without_keys else keys[high - 1]

    def unread(self) -> list[str]:
        """Given keys that nobody has read since `READ` was cleared, and that act nowhere else."""
        left_out = narrow.left_out(self.values)
        seldom = [reads.SELDOM[key] for key in reads.SELDOM if self.values.get(key)]
        prefixes = tuple(prefix for found in (*left_out.values(), *seldom) for prefix in found)
        known = reads.READ | reads.UNSEEN | left_out.keys()
        return [
            key
            for key, value in self.values.items()
            if value is not None
            and key not in known
            and not (value is False and key not in self.typed)  # as the default has it
            and not key.startswith(prefixes or ("\0",))
        ]


def unused_arguments(trainer: Any) -> list[str]:
    """The names in `optim_args` that the trainer's optimizer does not have; nobody refuses them."""
    optimizer, given = trainer.optimizer, trainer.args.optim_args
    names = [pair.partition("=")[0].strip() for pair in given.split(",") if pair]
    known = optimizer.param_groups[0].keys()
    return [name for name in names if name not in known and not hasattr(optimizer, name)]


def words_of(value: Any) -> list[str]:
    """The words in a value by which a message may name it: texts, and names within mappings."""
    if isinstance(value, str):
        return [value] if len(value) > 2 and value not in ("steps", "epoch", "auto") else []
    if isinstance(value, dict):
        return [word for key, part in value.items() for word in [str(key), *words_of(part)]]
    if isinstance(value, list):
        return [word for part in value for word in words_of(part)]
    return []


def build_sft(args: Any, sft: Any, model: Any) -> Any:
    """The trainer of `stages.sft`."""
    from stages import sft as stage
    from stages import sft_rows

    stage.keep_mask(sft)
    tokenizer = stage.load_sft_tokenizer(sft, model)
    rows = sft_rows.load(args.train_file, tokenizer, sft).dataset
    held_out = sft_rows.load(args.eval_file, tokenizer, sft).dataset if args.eval_file else None
    return stage.build_trainer(rows, args, sft, model, tokenizer, held_out)


def build_grpo(args: Any, grpo: Any, model: Any) -> Any:
    """The trainer of `stages.grpo`."""
    from data_prep.schema import read_problems
    from stages import grpo as stage
    from stages.run import training

    rows = list(read_problems(args.train_file))
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    problems, held_out, dropped = stage.split(rows, args, grpo.seed, tokenizer)
    stage.check_enough(args.train_file, rows, problems, dropped, grpo)
    return stage.load_trainer(problems, held_out, args, grpo, model, tokenizer)


def inspect(rehearsal: Rehearsal) -> Found:
    """All that a rehearsal of a stage shows.

    A key without effect is a fault if it is ours. Of TRL's and transformers' it is a note, so that
    a new version stops no run; so it is where keys of the command line overrule those of a file.
    """
    try:
        rehearsal.prepare()
    except Exception as error:  # an architecture that cannot be made narrow, an unknown shape
        return Found(notes=[f"not rehearsed: {one_line(error)}"])
    reads.READ.clear()
    found = Found()
    for key, line in rehearsal.raised():
        if key is None:  # it may be the narrow model's own
            found.notes.append(f"not rehearsed: {line}")
        else:
            found.faults.append(line)
    if found.faults or found.notes:  # without the key of a fault others may lose their reader
        return found
    if rehearsal.unused:
        names = ", ".join(rehearsal.unused)
        line = f"optim_args: {rehearsal.values['optim_args']!r}: the optimizer takes no {names}"
        found.notes.append(f"{line}, which would have no effect")
    own = own_keys(load_keys(rehearsal.stage)[0])
    for key in rehearsal.unread():
        line = f"{key}: {rehearsal.values[key]!r} has no effect: nothing reads it"
        is_overruled = rehearsal.typed and key not in rehearsal.typed
        if key in own and not is_overruled:
            found.faults.append(f"{line}; remove it")
        else:
            found.notes.append(line)
    return found
