"""The audit's view of a recipe: its stages' settings, tokenizer and problems.

No weights are loaded. The tokenizer is the one that SFT loads, saved as SFT saves it. It is loaded
again as evaluation loads it.
"""

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from data_prep.sampling.hf import cut_at, eos_token_ids
from data_prep.sampling.store import Completion, Settings
from data_prep.schema import check_row, read_problems, take_grader
from eval.harness.settings import EvalArguments
from eval.harness.suite import OWN, read_problem_rows
from grading.own_grader import COLUMN
from pipeline.console import quiet
from pipeline.errors import UserError
from pipeline.key_types import UNSET
from pipeline.keys import yaml_flags
from pipeline.models.checkpoints import base_and_adapter
from pipeline.models.generation import read_repaired
from pipeline.models.tokenizer import load_template, load_tokenizer, trained_tokenizer
from pipeline.rows import read_rows
from pipeline.settings import Settings as StageSettings
from pipeline.settings import parse

NO_LIMIT = 1 << 30  # tokens


@dataclass
class Recipe:
    """Settings of a recipe's other stages; None where it lacks a stage."""

    tokenizer: Any
    model: str  # whose tokenizer it is
    end_ids: set[int]
    files: dict[str, str | None]  # what the stages read: sft_train, grpo_train, grpo_eval
    grpo: Any  # GrpoArguments
    config: Any  # GRPOConfig

    @property
    def rewards(self) -> list[tuple[str, float]]:
        """(name, weight) of GRPO's rewards; none of a recipe without GRPO."""
        if self.grpo is None:
            return []
        names = self.grpo.reward_funcs
        weights = self.config.reward_weights or [1.0] * len(names)
        return list(zip(names, weights, strict=True))

    def send(self, text: str, settings: Settings) -> Completion:
        """The completion of a model that writes `text` and then ends."""
        text, _ = cut_at(text, settings.until)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        ids = [*ids, self.tokenizer.eos_token_id]
        end = next(i for i, token in enumerate(ids) if token in self.end_ids)
        num_tokens = min(end + 1, settings.max_new_tokens)
        kept = self.tokenizer.decode(ids[: min(end, num_tokens)], skip_special_tokens=True)
        return Completion(kept, num_tokens, cut_off=end + 1 > settings.max_new_tokens)


def load_recipe(args: Any, folder: str) -> Recipe:
    """Parse the recipe's other stages; save its tokenizer to `folder`, and load that."""
    from transformers import GenerationConfig

    from stages.arguments import DEFAULTS, GrpoArguments, SftArguments
    from stages.rules import check_rules

    found: dict[str, tuple] = {}
    for stage, own, kind in (
        ("sft", SftArguments, "SFTConfig"),
        ("grpo", GrpoArguments, "GRPOConfig"),
    ):
        path = Path(args.recipe, f"{stage}.yaml")
        if path.is_file():
            argv = ["--config", str(path), "--run_dir", args.run]
            argv += yaml_flags(args.keys, args.recipe, stage)
            if args.model:
                argv += ["--model", args.model]
            if stage == "grpo":
                for key in ("reward_funcs", "reward_weights"):
                    if given := getattr(args, key):
                        argv += [f"--{key}", *map(str, given)]
            kinds = (kind, "ModelConfig")
            check = on_cpu(partial(check_rules, stage, processes=0))
            found[stage] = parse(__doc__, own, kinds, check, argv, DEFAULTS)
    if not found:
        raise UserError(f"recipe: {args.recipe} has neither sft.yaml nor grpo.yaml; add one")
    _, config, model = next(iter(found.values()))
    *_, (_, _, trained) = found.values()
    start, template = str(model.model_name_or_path), getattr(config, "chat_template_path", None)
    result = str(trained.model_name_or_path)
    model.model_name_or_path = trained_tokenizer(start, template, result)
    _load_tokenizer(args, config, model).save_pretrained(folder)
    tokenizer = load_tokenizer(folder, "recipe", needs=())
    ends = None
    if args.tokenizer != "bytes":
        with contextlib.suppress(OSError):  # a checkpoint need not have a generation config
            base, _ = base_and_adapter(str(model.model_name_or_path))
            repaired, _ = read_repaired(base)
            if repaired is None:
                repaired = GenerationConfig.from_pretrained(base)
            ends = repaired.eos_token_id
    files = {}
    if "sft" in found:
        files["sft_train"] = found["sft"][0].train_file
    grpo, config, _ = found.get("grpo", (None, None, None))
    if grpo:
        files |= {"grpo_train": grpo.train_file, "grpo_eval": grpo.eval_file}
    model = args.tokenizer or model.model_name_or_path
    return Recipe(tokenizer, model, eos_token_ids(ends, tokenizer), files, grpo, config)


def on_cpu(check: Callable[[StageSettings], Any]) -> Callable[[StageSettings], StageSettings]:
    """The check of a stage's settings, then these settings for a machine without a GPU.

    The check comes first: it refuses on a CPU what the recipe's GPU can do.
    """

    def run(settings: StageSettings) -> StageSettings:
        settings = check(settings) or settings
        return settings.replaced(use_cpu=True, tf32=UNSET)

    return run


def _load_tokenizer(args: Any, config: Any, model: Any) -> Any:
    from stages.run import training
    from stages.tiny_model import build_tokenizer

    quiet()
    if args.tokenizer == "bytes":
        return build_tokenizer(["think boxed answer step problem the"])
    if args.tokenizer:
        model.model_name_or_path = args.tokenizer
    try:
        template = getattr(config, "chat_template_path", None)
        return training.load_tokenizer(model, config, template and load_template(template))
    except UserError as error:
        raise UserError(f"{error}; give another folder as TOKENIZER, or TOKENIZER=bytes") from error


def collect_sets(
    recipe: Recipe, settings: EvalArguments, num_rows: int
) -> tuple[dict[str, list[dict]], dict[str, str]]:
    """The rows to audit, `{set: rows}`, and `{set: why it could not be read}`.

    The stages' own files give at most `num_rows` rows, chosen by a fixed seed; tasks give all. The
    further golds of rows that accept several are a set of their own.

    Raises:
        UserError: a file has no rows, or one that no stage could use.
    """
    sets: dict[str, list[dict]] = {}
    skipped: dict[str, str] = {}
    for name, path in recipe.files.items():
        if path is None:
            continue
        if not Path(path).is_file():
            maker = "distill" if Path(path).parent.name == "distill" else "data"
            skipped[name] = f"{path} does not exist; `make {maker}` builds it"
            continue
        rows = _sft_rows(path) if name == "sft_train" else list(read_problems(path))
        if not rows:
            raise UserError(f"{path}: has no rows; check data.yaml, then run `make data` again")
        sets[name] = random.Random(0).sample(rows, min(num_rows, len(rows)))
    for task in settings.tasks:
        try:
            found = read_problem_rows(task, **settings.problem_keys())
        except UserError as error:
            if task in OWN:
                raise
            skipped[task] = str(error)
            continue
        sets[task] = found[: settings.limit]
    for name, rows in list(sets.items()):
        others = [
            row | {"answers": [gold, *row["answers"]]}
            for row in rows
            for gold in row["answers"][1:]
        ]
        if others:
            sets[f"{name}, other golds"] = others
    return sets, skipped


def _sft_rows(path: str) -> list[dict]:
    """The rows of an SFT file in the shape of the others; raises `UserError` on a bad one."""
    rows = []
    for where, row in read_rows(path):
        check_row(row, ("prompt", "completion", "answers", "answer_form"), where, (COLUMN,))
        if row.get(COLUMN):
            take_grader(row[COLUMN], where, path)
        rows.append(row | {"id": row.get("id", where)})
    return rows
