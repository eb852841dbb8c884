"""The audit's view of a recipe: its stages' settings, tokenizer and problems.

No weights are loaded. The tokenizer is the one that SFT loads, saved as SFT saves it. It is loaded
again as evaluation loads it.
"""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep.sampling.hf import cut_at, eos_token_ids
from data_prep.sampling.store import Completion, Settings
from data_prep.schema import check_row, read_problems, take_grader
from eval.harness.settings import EvalArguments
from eval.harness.suite import OWN, read_problem_rows
from grading.own_grader import COLUMN
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
    def rewards(self) -> dict[str, float]:
        """The weight of each of GRPO's rewards; none of a recipe without GRPO."""
        if self.grpo is None:
            return {}
        names = self.grpo.reward_funcs
        weights = self.config.reward_weights or [1.0] * len(names)
        return dict(zip(names, weights, strict=True))

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
    from stages.run import training
    from stages.tiny_model import build_tokenizer

    stages = [one for one in ("sft", "grpo") if Path(args.recipe, f"{one}.yaml").is_file()]
    if not stages:
        raise UserError(f"recipe: {args.recipe} has neither sft.yaml nor grpo.yaml; add one")
    found = {stage: parse_stage(stage, args) for stage in stages}
    _, config, model = found[stages[0]]
    template, ends = getattr(config, "chat_template_path", None), None
    if args.tokenizer == "bytes":
        tokenizer = build_tokenizer(["think boxed answer step problem the"])
    else:
        result = str(found[stages[-1]][2].model_name_or_path)
        start = args.tokenizer or trained_tokenizer(model.model_name_or_path, template, result)
        model.model_name_or_path = start
        try:
            template = template and load_template(template)
            tokenizer = training.load_tokenizer(model, config, template)
        except UserError as error:
            raise UserError(
                f"{error}; give another folder as TOKENIZER, or TOKENIZER=bytes"
            ) from error
        ends = end_ids_of(start)
    tokenizer.save_pretrained(folder)
    tokenizer = load_tokenizer(folder, "recipe", needs=())
    grpo, grpo_config, _ = found.get("grpo", (None, None, None))
    files = {"sft_train": found["sft"][0].train_file} if "sft" in found else {}
    if grpo:
        files |= {"grpo_train": grpo.train_file, "grpo_eval": grpo.eval_file}
    model = args.tokenizer or model.model_name_or_path
    return Recipe(tokenizer, model, eos_token_ids(ends, tokenizer), files, grpo, grpo_config)


def parse_stage(stage: str, args: Any) -> tuple:
    """The settings of SFT or GRPO as the recipe and the audit's keys give them, for a CPU."""
    from stages.arguments import DEFAULTS, GrpoArguments, SftArguments
    from stages.rules import check_rules

    argv = ["--config", f"{args.recipe}/{stage}.yaml", "--run_dir", args.run]
    argv += yaml_flags(args.keys, args.recipe, stage)
    if args.model:
        argv += ["--model", args.model]
    for key in ("reward_funcs", "reward_weights") if stage == "grpo" else ():
        if given := getattr(args, key):
            argv += [f"--{key}", *map(str, given)]

    def check(settings: StageSettings) -> StageSettings:
        # First, as it refuses on a CPU what the recipe's GPU can do.
        settings = check_rules(stage, settings, processes=0) or settings
        return settings.replaced(use_cpu=True, tf32=UNSET)

    own, kind = (SftArguments, "SFTConfig") if stage == "sft" else (GrpoArguments, "GRPOConfig")
    return parse(__doc__, own, (kind, "ModelConfig"), check, argv, DEFAULTS)


def end_ids_of(checkpoint: str) -> int | list[int] | None:
    """The ids of a checkpoint's generation config that end a completion; None without them."""
    from transformers import GenerationConfig

    try:
        base, _ = base_and_adapter(checkpoint)
        config = read_repaired(base)[0] or GenerationConfig.from_pretrained(base)
    except OSError:  # a checkpoint need not have a generation config
        return None
    return config.eos_token_id


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
