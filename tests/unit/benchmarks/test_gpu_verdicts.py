"""What `make gpu-check` says of figures, made up here, and what it advises."""

import json

import pytest

from benchmarks.gpu_verdicts import (
    OTHERS,
    compare,
    judge_generation,
    judge_memory,
    judge_packing,
    judge_update,
    judge_varlen,
    judge_waits,
    read_training,
)


def trainer(attention, *ratio):
    return {"attention": attention, "ratio": ratio}


def update(ours, by_row=None, attention="varlen", difference=1e-3):
    trainers = {"stock": trainer("sdpa", 1.0, 1.0, 1.0), "ours": trainer(attention, *ours)}
    if by_row:
        trainers["ours, by row"] = trainer("sdpa_by_row", by_row, by_row, by_row)
    return judge_update(trainers, difference)


def packing(one, other):
    names = {"padded": 1.0, "packed to 1,024": one, "packed to 2,048": other}
    return judge_packing({n: trainer("varlen", x, 0.9 * x, 1.1 * x) for n, x in names.items()})


def varlen(**changes):
    cases = [
        {"name": name, "shares": name == "b", "is_equal": True, "varlen": 4e-3, "by_row": 3e-3}
        for name in "ab"
    ]
    for name, change in changes.items():
        cases["ab".index(name)].update(change)
    return judge_varlen(cases)


DIFFERS, REFUSED = {"varlen": 0.3, "is_equal": False}, {"varlen": None, "is_equal": False}
GOOD = "nothing to change"
# What is judged, words of the figures, and words of the advice.
BATCHED = {"transformers": 2, "ours": 1, "generate_batch": 4}
FAST, NULL = (1.3, 1.2, 1.4), "set update_tokens: null"
VERDICTS = {
    "faster": (update(FAST, 0.4), "varlen: 1.30 [1.20, 1.40] of TRL's speed, by row 0.40", GOOD),
    "perhaps slower": (update((0.95, 0.8, 1.1), 0.4), "0.95", GOOD),
    "slower": (update((0.8, 0.7, 0.9), 0.4), "0.80", "set update_tokens: null, and report"),
    "other gradients": (update(FAST, 0.4, difference=0.02), "2.0e-02", NULL),
    "no number": (update(FAST, difference=float("nan")), "nan", NULL),
    "by row is faster": (update(FAST, 1.5), "by row 1.50", "row by row is faster"),
    "refused by the trial": (update(FAST, 1.3, "sdpa_by_row"), "sdpa_by_row: 1.30", "not taken"),
    "an older torch": (update(FAST, None, "sdpa_by_row"), "sdpa_by_row: 1.30", GOOD),
    "packed": (packing(1.6, 0.5), "packed to 1,024 (varlen): 1.60", GOOD),
    "packed, slower": (packing(0.4, 0.8), "packed to 2,048", "set packing: false"),
    "waits": (judge_waits({OTHERS: 9, "a": 1, "b": 1}, ""), "2 waits of ours in a step, 9", GOOD),
    "waits often": (judge_waits({"a": 1, "b": 4}, ""), "5 waits", "b waits 4 times: report it"),
    "a pass waits": (judge_waits({}, "it waits"), "0 waits", "it waits: report it"),
    "ours": (judge_generation({"transformers": 2, "ours": 3}), "ours 1.50 of", GOOD),
    "theirs": (judge_generation({"transformers": 2, "ours": 1}), "unset is false", GOOD),
    "batched": (judge_generation(BATCHED), "generate_batch 2.00", "continuous_batching: true"),
    "fits": (judge_memory([0.98, 1.1]), "0.98 to 1.10", GOOD),
    "too low": (judge_memory([0.8, 1.1]), "0.80", "free"),
    "too high": (judge_memory([1.2, 1.0]), "1.20", "too high: report it"),
    "as SDPA": (varlen(), "equals SDPA in 2 of 2 cases, within 4.0e-03", GOOD),
    "a head size is refused": (varlen(a=REFUSED), "1 of 2 cases, within 4.0e-03; refused", GOOD),
    "all are refused": (varlen(a=REFUSED, b=REFUSED), "0 of 2", GOOD),
    "differs": (varlen(a=DIFFERS), "1 of 2", "a differ: report it"),
    "other ends": (varlen(b=DIFFERS), "1 of 2", "the last query does not see the last key"),
}  # fmt: skip


@pytest.mark.parametrize("case", VERDICTS)
def test_a_verdict_is_one_line_with_what_to_change(case):
    verdict, figures, advice = VERDICTS[case]
    text = str(verdict)
    assert figures in text and advice in text and "\n" not in text
    assert bool(verdict.remedy) == (advice != GOOD)


def test_runs_that_differ_or_learn_nothing_fail(tmp_path):
    def log(name, *losses, **others):
        (tmp_path / name / "model").mkdir(parents=True)
        history = [{"loss": x, "grad_norm": 1.0, "step": n} | others for n, x in enumerate(losses)]
        state = {"log_history": history}
        (tmp_path / name / "model/trainer_state.json").write_text(json.dumps(state))
        return tmp_path / name

    one, same, other = log("one", 4.0, 3.0), log("same", 4.0, 3.01), log("other", 4.0, 3.3)
    assert "one" in compare(same, one, 1e-2)
    for wrong in (other, log("nan", 4.0, float("nan"))):
        with pytest.raises(ValueError, match="off those of one"):
            compare(wrong, one, 1e-2)
    with pytest.raises(ValueError, match="gradient norms"):
        read_training(log("dead", 4.0, grad_norm=0.0))
    assert "alignment 1.01" in str(read_training(log("near", 4.0, **{"guard/alignment": 1.01})))
    with pytest.raises(ValueError, match=r"guard/alignment 1\.2000"):
        read_training(log("far", 4.0, **{"guard/alignment": 1.2}))
