"""The curriculum in real runs: which problems are generated for, what is trained on.

One process and two over gloo do the same: groups, rewards, advantages, loss, curriculum.
"""

import copy

import pytest

from data_prep import manifest
from tests.integration.trainer.recorders import generation_batches, read_steps, record_batches
from tests.integration.trainer.rollout_checks import check_advantages, check_logs, check_step

pytestmark = pytest.mark.integration

PAID = [1.0, 0.5, 1.0]  # correctness, form, length
ONE = {"reward_funcs": ["correctness_reward"], "reward_weights": [1.0]}


@pytest.fixture
def train(run_stage, monkeypatch, pool):
    """Train with 4 groups a batch; returns what was done, the trainer, its curriculum before."""
    from stages.trainer import trainer as module

    def call(**settings):
        steps, trainers = [], []
        with monkeypatch.context() as patch:
            recorder = generation_batches(module.MathGRPOTrainer, steps, patch.setattr)

            class Trainer(recorder):
                def train(self, *args, **kwargs):
                    trainers.append((self, copy.deepcopy(self.curriculum)))
                    return super().train(*args, **kwargs)

            patch.setattr(module, "MathGRPOTrainer", Trainer)
            values = {"per_device_train_batch_size": 16, "max_steps": 4, "log_completions": True}
            values |= {"train_file": str(pool[0]), "num_completions_to_print": 0} | settings
            folder = run_stage("grpo", **values)
        ((trainer, twin),) = trainers
        num = sum(len(one["rows"]) for step in steps for one in step["rounds"])
        assert manifest.read(folder)["counts"]["completions"] == num
        assert steps[-1]["num_completions"] == num
        return steps, trainer, twin

    return call


def check(steps, trainer, twin, pool, weights=PAID, kind="group", max_rounds=0):
    """Every step; returns the groups that were trained on, the generated ones, the advantages."""
    found = []
    for step in steps:
        batch, generated = check_step([step], pool[1], twin, max_rounds)
        values = check_advantages([step], batch, weights, kind)
        if max_rounds:
            check_logs([step], batch, generated, weights)
        found.append((batch, generated, values))
    assert twin is None or trainer.curriculum.state_dict() == twin.state_dict()
    return found


def read_tables(trainer):
    from pandas import read_parquet

    folder = trainer.args.output_dir
    steps = range(1, trainer.state.global_step + 1)
    return [read_parquet(f"{folder}/completions/completions_{n:05d}.parquet") for n in steps]


REFILLS = {
    "refill": ({"curriculum": "refill"} | ONE, [1.0], "group", 2),
    "refill with other log-probs": (
        {"curriculum": "predictive+refill", "max_refill_rounds": 1, "scale_rewards": "batch",
         "beta": 0.1, "per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 8},
        PAID, "batch", 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFILLS)
def test_uniform_groups_are_replaced(train, pool, name):
    """By whole groups of other problems, with all that belongs to them; padding is redone."""
    settings, weights, kind, max_rounds = REFILLS[name]
    steps, trainer, twin = train(**settings)
    assert len(steps) == 4
    found = check(steps, trainer, twin, pool, weights, kind, max_rounds)
    keys = {"advantages", "completion_ids", "completion_mask", "num_items_in_batch"}
    keys |= {"prompt_ids", "prompt_mask"}
    if "beta" in settings:
        keys |= {"old_per_token_logps", "ref_per_token_logps"}
    assert all({*step["keys"]} == keys for step in steps)
    # Where nothing is replaced or all rounds are equally wide, nothing is tested.
    shapes = [[one["shape"] for one in step["rounds"]] for step in steps]
    assert any(len({shape[side] for shape in part}) > 1 for part in shapes for side in (0, 1))
    assert any(group not in generated[:4] for batch, generated, _ in found for group in batch)
    for step, table in zip(steps, read_tables(trainer)[:: len(steps[0]["losses"])], strict=True):
        assert table["advantage"].tolist() == pytest.approx(step["advantages"])
        texts = [completion[-1]["content"] for completion in table["completion"]]
        assert texts == [one[-1]["content"] for one in step["table"]["completion"]]
        assert table["verdict"].tolist() == step["table"]["verdict"]


class InTurn:
    """An own curriculum: problems one after the other, and a second round in every other batch."""

    def __init__(self):
        self.start, self.seen, self.is_due = 0, [], False

    def choose(self, count):
        self.start, self.is_due = self.start + count, not self.is_due
        return list(range(self.start - count, self.start))

    def next_round(self, groups):
        if self.is_due and len(self.seen) % 8 == 4:
            return list(range(20, 24))

    def observe(self, problems, num_right, num_generations):
        assert num_generations == 4 and max(num_right) <= 4
        self.seen += problems

    def state_dict(self):
        return {"start": self.start, "seen": self.seen}

    def load_state_dict(self, state):
        self.start, self.seen = state["start"], state["seen"]


def test_an_own_curriculum(train, pool, monkeypatch):
    """It chooses, is told what was generated, may ask for a second round, and is saved."""
    from stages import grpo

    own = InTurn()
    monkeypatch.setattr(grpo, "build_curriculum", lambda *_: own)
    steps, trainer, _ = train(max_steps=3, **ONE)
    ids = list(pool[1])
    found = [
        [ids.index(key) for key in one["ids"][::4]] for step in steps for one in step["rounds"]
    ]
    assert found[:2] == [[0, 1, 2, 3], [20, 21, 22, 23]] and found[2] == [4, 5, 6, 7]
    assert [problem for problems in found for problem in problems] == own.seen
    assert trainer.extra_state["curriculum"] is own

    class TooFew(InTurn):
        def choose(self, count):
            return [0]

    monkeypatch.setattr(grpo, "build_curriculum", lambda *_: TooFew())
    with pytest.raises(ValueError, match="curriculum: chose 1 problems, 4 are needed"):
        train(max_steps=1, **ONE)


# Several processes


@pytest.fixture
def launch(fork_server, write_recipe, pool, tmp_path):
    """Train with 4 groups a batch, beta 0.1; returns each rank's steps, its curriculum, the twin.

    Completions are made of prompt and number in the group, in all processes alike.
    """
    from stages.arguments import GrpoArguments
    from stages.trainer.curriculum import build_curriculum

    def call(num_processes, verdicts="by problem", **settings):
        folder = tmp_path / f"{num_processes} processes"
        values = {"per_device_train_batch_size": 16 // num_processes, "max_steps": 4, "beta": 0.1}
        values |= {"train_file": str(pool[0]), "output_dir": str(folder)} | settings
        recipe = write_recipe("grpo", **values)
        fork_server.finish(recipe, num_processes, setup=(record_batches, verdicts))
        found = [read_steps(f"{folder}.rank{rank}.jsonl") for rank in range(num_processes)]
        known = ("curriculum", "explore_share", "rest_batches")
        keys = {key: settings[key] for key in known if key in settings}
        twin = build_curriculum([*pool[1].values()], GrpoArguments(train_file="", **keys), 4, 0)
        return [steps[:-1] for steps in found], [steps[-1]["curriculum"] for steps in found], twin

    return call


CASES = {
    "off": ({}, "by problem", 0, "group"),
    "predictive": (
        {"curriculum": "predictive", "max_steps": 6, "explore_share": 0.5, "rest_batches": 1},
        "by problem", 0, "group",
    ),
    # Every first group is uniform and no second one: else the ranks need unlike numbers, and
    # two processes generate more than one.
    "refill": (
        {"curriculum": "predictive+refill", "scale_rewards": "batch"}, "second round", 2,
        "batch",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_two_processes_do_what_one_does(launch, pool, name):
    settings, verdicts, max_rounds, kind = CASES[name]
    (one,), (curriculum,), twin = launch(1, verdicts, **settings)
    two, curricula, _ = launch(2, verdicts, **settings)
    assert len(one) == len(two[0]) == len(two[1]) == settings.get("max_steps", 4)
    for step, *ranks in zip(one, *two, strict=True):
        batch, _ = check_step([step], pool[1], twin, max_rounds)
        check_advantages([step], batch, PAID, kind)
        assert texts_of(ranks) == texts_of([step]) == [t for one in batch for t in one["texts"]]
        for key in ("given", "advantages"):
            assert [x for part in ranks for x in part[key]] == step[key], key
        for key in ("num_items", "num_completions", "table"):
            assert ranks[0][key] == ranks[1][key] == step[key], key
        for number, alone in enumerate(step["rounds"]):
            both = [part["rounds"][number] for part in ranks]
            assert both[0]["ids"] + both[1]["ids"] == alone["ids"]
            assert both[0]["rewards"] == both[1]["rewards"] == alone["rewards"]
        losses = [part["losses"][0] for part in ranks]
        assert sum(losses) / 2 == pytest.approx(step["losses"][0], abs=1e-6)
        assert losses[0] != losses[1]
        for key in ("loss", "rollout/rewards", "rollout/uniform_groups", "frac_reward_zero_std"):
            assert ranks[0]["logs"][key] == pytest.approx(step["logs"][key], abs=1e-6), key
    if name == "predictive":  # not what TRL's loader gives
        assert all([*step["rounds"][0]["ids"][::4]] != step["given"] for step in one[1:])
    assert curricula == [curriculum] * 2 == [twin.state_dict() if twin else None] * 2
    assert any(step["losses"][0] != one[0]["losses"][0] for step in one)


def texts_of(ranks):
    return [row["text"] for step in ranks for row in step["rows"]]


def test_ranks_with_unlike_numbers_of_uniform_groups_stay_together(launch, pool):
    """Each generates as many as the one with most, and keeps what it needs."""
    settings = {"curriculum": "refill", "max_refill_rounds": 3, "max_steps": 6}
    ranks, curricula, twin = launch(2, **settings)
    unlike = 0
    for both in zip(*ranks, strict=True):
        batch, generated = check_step(both, pool[1], twin, 3)
        check_advantages(both, batch, PAID)
        check_logs(both, batch, generated, PAID)
        bad = [group["is_uniform"] for group in generated[:4]]
        unlike += sum(bad[:2]) != sum(bad[2:])
        assert both[0]["num_completions"] == both[1]["num_completions"]
    num_rounds = {len(step["rounds"]) for step in ranks[0]}
    assert unlike > 1 and len(num_rounds) > 1 and max(num_rounds) > 2
    assert curricula == [twin.state_dict()] * 2
