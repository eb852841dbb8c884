"""What the GRPO trainer generates and trains on, written down; and what it should train on.

Run as a program (`rollout_recorder.py`, orders as JSON lines on standard input) it imports
everything once and forks the processes of each run, so that a run costs two seconds, not twelve.
"""

import gc
import json
import os
import random
import signal
import sys
import traceback
import zlib
from pathlib import Path

SIZE = 4  # rollouts in a group, in all recipes here


def checksum(text):
    return zlib.crc32(text.encode())


def kind_of(question):
    """What the problem's groups are like: always right, always wrong, or mixed."""
    return ("right", "wrong", "mixed", "mixed")[checksum(question) % 4]


def is_right(question, completion, number):
    kind = kind_of(question)
    return kind == "right" or (kind == "mixed" and checksum(completion) % 2 == 1)


def record(base, steps, patch=setattr, is_right=is_right, rollout=None):
    """A trainer that appends what every generation batch was to `steps`, as JSON takes it.

    Args:
        base: the stage's trainer.
        patch: sets an attribute, such as `monkeypatch.setattr`.
        is_right: (question, completion, number in the group) -> verdict.
        rollout: (prompt ids, number in the group) -> completion ids; the model's without it.
    """
    from trl import GRPOTrainer

    from data_prep.grading.answers import Grade
    from stages import rewards

    rounds, golds_seen = [], []
    generate, score = GRPOTrainer._generate_single_turn, GRPOTrainer._generate_and_score_completions
    calculate = GRPOTrainer._calculate_rewards

    def grade_rollouts(prompts, completions, golds, **_):
        questions = [prompt[-1]["content"] for prompt in prompts]
        golds_seen[:] = zip(questions, golds, strict=True)
        pairs = enumerate(zip(questions, completions, strict=True))
        found = [is_right(question, text, n % SIZE) for n, (question, text) in pairs]
        return [Grade("right" if right else "wrong", None) for right in found]

    def spy_generate(self, prompt_ids, *args):
        if rollout is not None:
            return [rollout(ids, n % SIZE) for n, ids in enumerate(prompt_ids)], None
        completions, _ = generate(self, prompt_ids, *args)
        # The model writes up to the limit: the lengths shall differ, and between problems too.
        lengths = [3 + (checksum(str(ids)) + n % SIZE) % 8 for n, ids in enumerate(prompt_ids)]
        return [ids[:length] for ids, length in zip(completions, lengths, strict=True)], None

    def spy_calculate(self, inputs, prompts, completions, ids):
        values = calculate(self, inputs, prompts, completions, ids)
        ids = [row["id"] for row in inputs]
        texts = [completion[-1]["content"] for completion in completions]
        pairs = [[question, gold] for question, gold in golds_seen]
        rounds.append({"ids": ids, "rewards": values.tolist(), "texts": texts, "golds": pairs})
        return values

    def spy_score(self, inputs):
        output = score(self, inputs)
        rounds[-1] |= {"rows": rows_of(output, self._tokenizer), "keys": sorted(output)}
        rounds[-1]["shape"] = [output["prompt_ids"].size(1), output["completion_ids"].size(1)]
        return output

    patch(rewards, "grade_rollouts", grade_rollouts)
    patch(GRPOTrainer, "_generate_single_turn", spy_generate)
    patch(GRPOTrainer, "_calculate_rewards", spy_calculate)
    patch(GRPOTrainer, "_generate_and_score_completions", spy_score)

    class Recorder(base):
        def _generate_and_score_completions(self, inputs):
            rounds.clear()
            output = super()._generate_and_score_completions(inputs)
            columns = {"advantage": self._logs["advantages"]} | self._logs["rewards"]
            columns |= self._logs["extra"]
            columns |= {key: self._logs[key] for key in ("prompt", "completion")}
            steps.append(
                {
                    "given": [row["id"] for row in inputs[::SIZE]],
                    "rounds": list(rounds),
                    "rows": rows_of(output, self._tokenizer),
                    "keys": sorted(output),
                    "shape": [output["prompt_ids"].size(1), output["completion_ids"].size(1)],
                    "advantages": output["advantages"].tolist(),
                    "num_items": output["num_items_in_batch"].item(),
                    "num_completions": self.num_completions,
                    "table": {name: list(values) for name, values in columns.items()},
                    "losses": [],
                }
            )
            return output

        def training_step(self, *args, **kwargs):
            loss = super().training_step(*args, **kwargs)
            steps[-1]["losses"].append(loss.item())
            return loss

        def log(self, logs, *args):
            super().log(logs, *args)
            if "loss" in logs and "logs" not in steps[-1]:  # the others of a batch repeat nothing
                steps[-1]["logs"] = dict(logs)

    return Recorder


def rows_of(output, tokenizer):
    """Rows without padding: prompt and completion ids, and log-probs where TRL keeps them."""
    rows = []
    masks = [output[f"{name}_mask"].bool() for name in ("prompt", "completion")]
    for mask, name, is_left in zip(masks, ("prompt", "completion"), (True, False), strict=True):
        assert (output[f"{name}_ids"][~mask] == tokenizer.pad_token_id).all()
        order = mask.long() if is_left else mask.long().flip(1)
        assert (order.diff(dim=1) >= 0).all(), "a hole in the mask"
        assert output[f"{name}_mask"].sum(dim=1).min() > 0
    for n in range(len(masks[0])):
        row = {"prompt": output["prompt_ids"][n][masks[0][n]].tolist()}
        row["completion"] = output["completion_ids"][n][masks[1][n]].tolist()
        row["text"] = tokenizer.decode(row["completion"], skip_special_tokens=True)
        for key in ("old_per_token_logps", "ref_per_token_logps"):
            if key in output:
                row[key] = output[key][n][masks[1][n]].tolist()
        rows.append(row)
    return rows


def read_steps(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def hashed_rollout(prompt_ids, number):
    """Three to ten tokens that prompt and number decide, whatever the weights are."""
    draw = random.Random(f"{prompt_ids} {number}")
    return [draw.randrange(5, 290) for _ in range(draw.randrange(3, 11))]


def run(order):
    """One process of a run: trains and writes `<output_dir>.rank<n>.jsonl`."""
    from data_prep.config import run_cli
    from stages import grpo
    from stages.trainer import grpo_trainer

    calls = []

    def in_the_second_round(question, completion, number):
        return len(calls) % 2 == 0 and number % 2 == 1

    os.environ.update(order["env"])
    sys.argv = ["grpo", "--config", order["recipe"]]
    steps, verdict = [], is_right
    folder = json.loads(Path(order["recipe"]).read_text())["output_dir"]
    base = grpo_trainer.MathGRPOTrainer
    if order["verdicts"] == "second round":
        verdict = in_the_second_round

        class Counted(base):
            def _calculate_rewards(self, *args):
                calls.append(1)
                return super()._calculate_rewards(*args)

        base = Counted
    recorder = record(base, steps, is_right=verdict, rollout=hashed_rollout)

    class Reporter(recorder):
        def train(self, *args, **kwargs):
            output = super().train(*args, **kwargs)
            curriculum = self._curriculum.state_dict() if self._curriculum else None
            path = f"{folder}.rank{self.args.process_index}.jsonl"
            lines = [*steps, {"curriculum": curriculum}]
            Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines))
            return output

    grpo_trainer.MathGRPOTrainer = Reporter
    run_cli(grpo.main)


def leave(order):
    """Run, and end the process without taking apart what it shares with the others."""
    code = 1
    try:
        run(order)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve():
    """Fork the processes of each order and answer with their exit codes."""
    import stages.trainer.grpo_trainer  # noqa: F401 - what takes long

    gc.freeze()  # else every collection in a child copies all that they share
    for line in sys.stdin:
        pids = []
        for order in json.loads(line):
            pid = os.fork()
            if pid == 0:
                signal.alarm(90)  # a deadlock ends here
                file = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                for number in (1, 2):
                    os.dup2(file, number)
                leave(order)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        sys.stdout.write(json.dumps(codes) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
