"""What `make gpu-check` says of figures, made up here, and what it advises."""

import json

import pytest

from benchmarks import gpu_verdicts as verdicts
from benchmarks.gpu_verdicts import OTHERS, compare, read_training


def speed(ratio, attention="varlen"):
    return {"attention": attention, "ratio": (ratio, 0.9 * ratio, 1.1 * ratio)}


def update(ours, by_row=0.4, attention="varlen", difference=1e-3):
    trainers = {"ours": speed(ours, attention), "ours, by row": speed(by_row)}
    return verdicts.judge_update(trainers, difference)


def packing(ratio):
    return verdicts.judge_packing({"padded": speed(1), "packed to 1,024": speed(ratio)})


def generation(**speeds):
    return verdicts.judge_generation({"transformers": 2} | speeds)


def varlen(**changes):
    case = {"name": "a", "is_equal": True, "varlen": 4e-3, "by_row": 3e-3}
    return verdicts.judge_varlen([case | changes])


GOOD = "nothing to change"
# What is judged, and words of the advice.
VERDICTS = {
    "faster": (update(1.3), GOOD),
    "slower": (update(0.8), "set update_tokens: null"),
    "other gradients": (update(1.3, difference=float("nan")), "set update_tokens: null"),
    "by row is faster": (update(1.3, 1.5), "row by row is faster"),
    "refused by the trial": (update(1.3, attention="sdpa_by_row"), "it was not taken"),
    "packed": (packing(1.6), GOOD),
    "packed, slower": (packing(0.8), "set packing: false"),
    "waits": (verdicts.judge_waits({OTHERS: 9, "a": 1}, {}), GOOD),
    "waits often": (verdicts.judge_waits({"b": 4}, {}), "b waits 4 times: report it"),
    "a pass waits": (verdicts.judge_waits({}, {OTHERS: 1}), f"waits in {OTHERS}: report it"),
    "ours": (generation(ours=3), GOOD),
    "batched": (generation(ours=1, generate_batch=4), "continuous_batching: true"),
    "fits": (verdicts.judge_memory([0.98, 1.1]), GOOD),
    "too low": (verdicts.judge_memory([0.8, 1.1]), "leave the missing share"),
    "too high": (verdicts.judge_memory([1.2, 1.0]), "too high: report it"),
    "as SDPA": (varlen(), GOOD),
    "a head size is refused": (varlen(varlen=None, is_equal=False), GOOD),
    "differs": (varlen(varlen=0.3), "a differ: report it"),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_a_verdict_is_one_line_with_what_to_change(case):
    verdict, advice = VERDICTS[case]
    assert advice in str(verdict) and "\n" not in str(verdict)
    assert bool(verdict.remedy) == (advice != GOOD)


def test_runs_that_differ_or_learn_nothing_fail(tmp_path):
    def log(name, *losses, **others):
        (tmp_path / name / "model").mkdir(parents=True)
        history = [{"loss": x, "grad_norm": 1.0, "step": n} | others for n, x in enumerate(losses)]
        state = {"log_history": history}
        (tmp_path / name / "model/trainer_state.json").write_text(json.dumps(state))
        return tmp_path / name

    one = log("one", 4.0, 3.0)
    assert "one" in compare(log("same", 4.0, 3.01), one, 1e-2)
    with pytest.raises(ValueError, match="off those of one"):
        compare(log("nan", 4.0, float("nan")), one, 1e-2)
    with pytest.raises(ValueError, match="gradient norms"):
        read_training(log("dead", 4.0, grad_norm=0.0))
    with pytest.raises(ValueError, match=r"guard/alignment 1\.2000"):
        read_training(log("far", 4.0, **{"guard/alignment": 1.2}))
