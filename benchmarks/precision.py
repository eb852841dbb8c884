"""How much of an optimizer's small updates the weights keep: float32, bf16, bf16 rounded by chance.

    python -m benchmarks.precision

One matrix of weights N(0, 0.02), gradients whose sizes differ by row and column (log-normal, sigma
1 each) and whose mean is 0.3 times their noise, AdamW without weight decay. All get the same
gradients; each is held against AdamW with float32 weights, step for step. docs/recipes.md has the
table.
"""

import sys
from typing import Any

from benchmarks.table import markdown
from pipeline.errors import run_cli

WAYS = ("float32", "bf16", "bf16, stochastic rounding")
RATES = (5e-7, 3e-7, 2e-6, 2e-5)
NUM_STEPS, NUM_ROWS = 100, 256  # rows of 1,024 weights


def measure(rate: float, num_steps: int, num_rows: int) -> dict[str, dict[str, float]]:
    """What each of `WAYS` keeps of the change that float32 weights undergo.

    `first` and `last` are the share of weights that these steps moved; `kept` is the change's
    projection on that of float32 over its length; `noise` the length of the rest.
    """
    import torch
    from torchao.optim import AdamW8bit

    numbers = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=numbers)

    start = (normal(num_rows, 1024) * 0.02).bfloat16().float()
    size = 1e-4 * torch.exp(normal(num_rows, 1) + normal(1, 1024))
    mean = 0.3 * normal(num_rows, 1024)
    weights = {way: start.to(torch.float32 if way == "float32" else torch.bfloat16) for way in WAYS}
    weights = {way: torch.nn.Parameter(w.clone()) for way, w in weights.items()}
    settings: dict[str, Any] = {"lr": rate, "weight_decay": 0.0}
    optimizers = {way: torch.optim.AdamW([weights[way]], **settings) for way in WAYS[:2]}
    optimizers[WAYS[2]] = AdamW8bit([weights[WAYS[2]]], bf16_stochastic_round=True, **settings)
    moved: dict[str, list[float]] = {way: [] for way in WAYS}
    torch.manual_seed(0)
    with torch.compiler.set_stance("force_eager"):
        for _ in range(num_steps):
            gradient = (size * (mean + normal(num_rows, 1024))).bfloat16()
            for way, weight in weights.items():
                before = weight.detach().clone()
                weight.grad = gradient.to(weight.dtype)
                optimizers[way].step()
                moved[way].append((weight != before).float().mean().item())
    changes = {way: weight.detach().float() - start for way, weight in weights.items()}
    exact = changes["float32"]
    kept = {way: ((c * exact).sum() / exact.square().sum()).item() for way, c in changes.items()}
    return {
        way: {
            "first": moved[way][0],
            "last": moved[way][-1],
            "kept": kept[way],
            "noise": ((changes[way] - kept[way] * exact).norm() / exact.norm()).item(),
        }
        for way in WAYS
    }


def main() -> None:
    """Print the table."""
    rows = [
        {
            "learning rate": f"{rate:.0e}",
            "weights": way,
            "moved, first step": f"{found['first']:.2%}",
            "last step": f"{found['last']:.2%}",
            "update kept": f"{found['kept']:.1%}",
            "noise": f"{found['noise']:.2f}",
        }
        for rate in RATES
        for way, found in measure(rate, NUM_STEPS, NUM_ROWS).items()
    ]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    run_cli(main)
