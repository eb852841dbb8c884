"""How far a sampler's log-probs are from the trainer's, and what that costs in accuracy, by dtype.

    python -m benchmarks.mismatch --grpo_config configs/skewed-cpu/grpo.yaml \
        --recipe_run runs/pools/gym --out docs/results/precision.md

After arXiv:2510.26788, "Defeating the Training-Inference Mismatch via FP16".
"""

import json
from statistics import fmean
from typing import Any

import torch

from benchmarks import mismatch_runs, table
from benchmarks.mismatch_runs import EXACT, FP16, MIXED, RUNS, BenchArguments
from data_prep.schema import read_problems
from pipeline import manifest
from pipeline.console import quiet
from pipeline.errors import run_cli
from pipeline.settings import parse
from stages import grpo as grpo_stage
from stages.arguments import GrpoArguments

# Trainer -> its samplers: "own", or a copy of the weights, as vLLM has: dtype, with an fp32 head.
PAIRS = {
    EXACT: ("own",),
    FP16: ("own", "float16", "bfloat16"),
    MIXED: ("own", "float32", "float16", "bfloat16", "bfloat16, fp32 head"),
    f"{MIXED}, fp32 head": ("own", "bfloat16", "bfloat16, fp32 head"),
    "bfloat16": ("own", "bfloat16, fp32 head"),
    "bfloat16, fp32 head": ("own", "bfloat16, fp32 head"),
}
NUM_COMPLETIONS = 256  # of a batch whose mismatch is measured
LOW, HIGH = 0.8, 1.28  # the clip range of the recipes
HOW = """`python -m benchmarks.mismatch --grpo_config {0.grpo_config} --recipe_run {0.recipe_run}`,
on a pool of `benchmarks.pools` and its start model (0.2M parameters, float32, tied embeddings).
fp16 autocast and its loss scale are emulated, for accelerate has neither on a CPU.

A trainer samples {1} completions on each of the seeds {0.seeds} and scores them as its update does.
Its sampler is its own model (transformers' cached generation, under the trainer's autocast), or a
copy of the weights in another dtype, which is what vLLM holds. (A bfloat16 copy of bfloat16 weights
gives its trainer's own figures, digit for digit, with its head in fp32 or not.) The gap of a token
is the distance of its log-prob in the trainer from that in the sampler, in 1e-4 nats. Ratio: its
mean over that of a float32 trainer under bf16 autocast with a bfloat16 sampler, geometric mean over
the seeds [95 % interval]. KL: of the trainer from the sampler, k3, 1e-6 nats a token. Outside:
tokens whose ratio leaves 0.8 to 1.28, %. Completion: quantiles 1 % and 99 % of a completion's
ratio. All in TRL's padded batch. Unpadded: mean gap with each row alone, as `update_tokens` has it.
Batch: mean distance of the padded batch from the rows alone, both in the trainer."""


def compare(trained: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """Figures of d = log pi_trainer - log pi_sampler; log-probs and mask have shape (B, C)."""
    logs = torch.where(mask.bool(), trained.double() - sampled.double(), 0.0)
    d, ratios = logs[mask.bool()], logs.sum(dim=1).exp()
    figures = {"mean": d.abs().mean(), "max": d.abs().max(), "kl": (d.exp() - 1 - d).mean()}
    figures["outside"] = ((d.exp() < LOW) | (d.exp() > HIGH)).double().mean()
    figures |= {"low": ratios.quantile(0.01), "high": ratios.quantile(0.99)}
    return {name: value.item() for name, value in figures.items()}


def measure(trainer: Any, sampler: Any | None = None) -> dict[str, dict[str, float]]:
    """Let `sampler`, or the trainer's model, write the first batch; score it in the trainer.

    Returns:
        "padded" and "alone": TRL's padded forward, and each row by itself, against the sampler;
        "batch": the one against the other.
    """
    from transformers.trainer_callback import PrinterCallback, ProgressCallback

    score, found, figures = trainer._generate_and_score_completions, {}, {}
    generate = (sampler or trainer.model).generate

    def recorded(*args: Any, **kwargs: Any) -> torch.Tensor:
        output = generate(*args, **kwargs)
        logps = torch.stack(output.logits, dim=1).float().log_softmax(dim=-1)  # (B, C, V)
        ids = output.sequences[:, -logps.size(1) :, None]  # (B, C, 1)
        found["sampled"] = logps.gather(2, ids).squeeze(2)  # (B, C)
        return output.sequences

    def scored(inputs: Any) -> Any:
        batch = score(inputs)
        ids, mask = (
            torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], dim=1)
            for name in ("ids", "mask")
        )  # (B, P + C)
        real, forward = batch["completion_mask"], trainer._get_per_token_logps_and_entropies
        for name, trainer.update_tokens in (("alone", 1), ("padded", None)):
            with torch.no_grad():
                found[name] = forward(trainer.model_wrapped, ids, mask, real.size(1))[0]
            figures[name] = compare(found[name], found["sampled"], real)
        figures["batch"] = compare(found["padded"], found["alone"], real)
        return batch

    trainer.generation_config.update(return_dict_in_generate=True, output_logits=True)
    trainer.model.generate, trainer._generate_and_score_completions = recorded, scored
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.train()
    return figures


def load_sampler(path: str, name: str) -> Any:
    """A model in the dtype that `name` begins with; with an fp32 head if it says so."""
    from transformers import AutoModelForCausalLM

    dtype, _, head = name.partition(", ")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
    if head:  # as vLLM's `head_dtype: float32`: the product, of weights that are rounded
        weight = model.lm_head.weight.float()
        model.lm_head.forward = lambda hidden: torch.nn.functional.linear(hidden.float(), weight)
    return model


def measure_pair(args: BenchArguments, name: str, sampler: str, seed: int) -> Any:
    """The mismatch of a trainer and a sampler of these names."""
    from stages import training

    folder, size = f"{args.recipe_run}/mismatch/batch", NUM_COMPLETIONS
    argv = mismatch_runs.flags(
        name, args, seed, output_dir=folder, max_steps=1, per_device_train_batch_size=size
    )
    own, grpo, model = parse(__doc__, GrpoArguments, ("GRPOConfig", "ModelConfig"), argv=argv)
    tokenizer = training.load_tokenizer(model, grpo, padding_side="left")
    trainer = grpo_stage.build_trainer(
        list(read_problems(own.train_file)), own, grpo, model, tokenizer
    )
    path = model.model_name_or_path
    return measure(trainer, None if sampler == "own" else load_sampler(path, sampler))


def measure_once(args: BenchArguments, *pair: Any) -> Any:
    """`measure_pair`, unless its figures are there already; `pair` has its other arguments."""
    path = mismatch_runs.folder_of(args, *pair).with_suffix(".json")
    made_from = mismatch_runs.made_from(args)
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if known.get("inputs") != made_from:
        known = {"inputs": made_from, "figures": measure_pair(args, *pair)}
        path.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_json(path, known)
    return known["figures"]


def show_pair(
    found: list[dict[str, dict[str, float]]], usual: list[dict[str, dict[str, float]]]
) -> dict[str, str]:
    """A row's figures; those of each seed are given, and of the pair to compare it with."""
    padded = {key: [one["padded"][key] for one in found] for key in found[0]["padded"]}
    means = {name: [one[name]["mean"] for one in found] for name in found[0]}
    gaps = zip(padded["mean"], [one["padded"]["mean"] for one in usual], strict=True)
    return {
        "mean gap": f"{1e4 * fmean(padded['mean']):.3g}",
        "ratio": table.show_interval(table.ratio_interval([a / b for a, b in gaps])),
        "greatest": f"{1e4 * max(padded['max']):.3g}",
        "KL": f"{1e6 * fmean(padded['kl']):.3g}",
        "outside": f"{100 * fmean(padded['outside']):.3f}",
        "completion": f"{fmean(padded['low']):.3f}-{fmean(padded['high']):.3f}",
        "unpadded": f"{1e4 * fmean(means['alone']):.3g}",
        "batch": f"{1e4 * fmean(means['batch']):.3g}",
    }


def main() -> None:
    """Measure, train what is missing, write both tables."""
    (args,) = parse(__doc__, BenchArguments)
    quiet()
    mismatch_runs.emulate_fp16()
    found: dict[str, Any] = {}
    for name, samplers in PAIRS.items():
        for sampler in samplers:
            pair = [measure_once(args, name, sampler, seed) for seed in args.seeds]
            found[f"{name} / {sampler}"] = pair
            table.tell(f"{name} / {sampler}: {fmean(one['padded']['mean'] for one in pair):.2e}")
    runs = {name: mismatch_runs.train_seeds(args, name) for name in RUNS}
    usual = found[f"{MIXED} / bfloat16"]
    rows = [{"trainer / sampler": name} | show_pair(pair, usual) for name, pair in found.items()]
    trained = [{"trainer": name} | mismatch_runs.show_run(runs[name], runs[EXACT]) for name in RUNS]
    table.publish(
        args.out,
        "Precision: sampler against trainer, and accuracy",
        HOW.format(args, NUM_COMPLETIONS),
        rows,
        {"about": table.about(), "mismatch": found, "runs": runs},
        mismatch_runs.TRAINED.format(args),
        table.markdown(trained),
    )


if __name__ == "__main__":
    run_cli(main)
