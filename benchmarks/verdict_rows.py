"""The rows on which two versions of the grader are compared: completions of many kinds with golds.

`make_rows` draws them from the tables of the grader's tests and from a folder of real data files.
Each kind draws with a seed of its own, so the rows are the same on every run. `verdict_rows.yaml`
has the pieces that they are made of.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.grader_cases import HOSTILE, TABLE
from pipeline.recipe_files import read_yaml
from pipeline.rows import read_rows

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests/unit/grading/tables"
PIECES = read_yaml(str(Path(__file__).with_suffix(".yaml")))
THOUGHT = "<think>\nWe work it out.\n</think>\n\n"
FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
TASK = re.compile(r"\b(?:evaluate|simplify|compute|calculate|expand|factor|find the value)\b", re.I)
HAN = re.compile("[\u4e00-\u9fff]")  # Chinese characters
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?")
LAST_SUM = re.compile(r"<<([^<>=]*[-+*/][^<>=]*)=([^<>=]*)>>(?!.*<<)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Row:
    """A completion, its gold, and whether it should earn the reward; None where nobody knows.

    `settings` are keyword arguments of `grade_all`. With `short` it is a text without a thought.
    """

    kind: str
    completion: str
    gold: str
    question: str = ""
    earns: bool | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A question of a data set, its gold, and the solution that a person wrote."""

    question: str
    gold: str
    solution: str = ""


Rows = Iterator[Row]
Sources = dict[str, list[Problem]]  # the problems of each data set, by its name


def pieces(name: str) -> list[str]:
    """The lines of a piece of `verdict_rows.yaml`."""
    return [line for line in PIECES[name].splitlines() if line]


def rules(name: str) -> list[tuple[re.Pattern[str], str]]:
    """(pattern, what takes its place) of each line."""
    parts = (line.partition(" =>") for line in pieces(name))
    return [(re.compile(pattern), new.removeprefix(" ")) for pattern, _, new in parts]


def read_table(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def some(items: Sequence[Any], num: int, rng: random.Random) -> list[Any]:
    """`num` of the items, or all if there are fewer."""
    return rng.sample(items, min(num, len(items)))


def boxed(answer: str) -> str:
    return f"{THOUGHT}The answer is $\\boxed{{{answer}}}$."


def fill(template: str, values: dict[str, Any]) -> str:
    """A template whose capitals are replaced by their values."""
    return re.sub("|".join(values), lambda found: str(values[found[0]]), template)


# The data sets


def last_box(solution: str) -> str:
    """What the last closed box of a solution holds; "" where there is none."""
    before, mark, inside = solution.rpartition("\\boxed{")
    depth = 1
    for at, char in enumerate(inside):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if not depth:
            return inside[:at].strip()
    return last_box(before) if mark else ""


def problem_of(name: str, row: dict[str, Any]) -> Problem:
    """The problem of a row, as the files of `SOURCES` write it."""
    if name.startswith("gsm8k"):
        return Problem(row["question"], row["answer"].split("#### ")[1], row["answer"])
    if name.startswith("orz"):
        asked, answer = row["conversations"]
        return Problem(asked["value"], str(answer["ground_truth"]["value"]))
    if name == "dapo":
        return Problem(row["prompt"][0]["content"], str(row["reward_model"]["ground_truth"]))
    if name == "svamp":
        return Problem(f"{row['Body']} {row['Question']}", f"{row['Answer']:.10g}")
    if name == "mawps":
        return Problem(row["input"], f"{row['target']:.10g}")
    if name == "arc":
        lines = map("({}) {}".format, row["choices"]["label"], row["choices"]["text"])
        return Problem("\n".join([row["question"], *lines]), row["answerKey"])
    question = row.get("problem") or row.get("instruction") or row["question"]
    solution = row.get("solution") or row.get("response") or ""
    gold = str(row["answer"]) if row.get("answer") is not None else last_box(solution)
    return Problem(question, gold.strip(), solution)


SOURCES = {
    "gsm8k-train": "gsm8k/train.jsonl",
    "gsm8k-test": "gsm8k/test.jsonl",
    "math-train": "math/train.jsonl",
    "math-test": "math/test_minus_math500_4500.jsonl.gz",
    "math500": "math/math500_test.jsonl",
    "numina": "numinamath_cot/numina_cot_2k.jsonl",
    "orz-57k": "orz/orz_math_57k_collected.head.json",
    "orz-72k": "orz/orz_math_72k_collection_extended.head.json",
    "deepscaler": "deepscaler/deepscaler_preview_1209.jsonl.gz",
    "aime": "deepscaler/rllm_train_aime.json",
    "aime25": "aime/aime25_areal.jsonl",
    "dapo": "dapo/dapo_math_17k_sample.jsonl",
    "svamp": "svamp/svamp_1000.jsonl",
    "mawps": "mawps/mawps_2065.jsonl",
    "arc": "arc_challenge/train_sample_300.jsonl",
}


def read_sources(data_root: Path) -> Sources:
    """The problems that have a gold, of each file that is there."""
    found = {name: data_root / file for name, file in SOURCES.items()}
    sources = {}
    for name, path in found.items():
        if path.is_file():
            problems = [problem_of(name, row) for _, row in read_rows(path)]
            sources[name] = [one for one in problems if one.gold and one.question]
    return sources


def pooled(sources: Sources, num: int, rng: random.Random) -> list[Problem]:
    """`num` problems of each source."""
    return [one for problems in sources.values() for one in some(problems, num, rng)]


def formula_of(question: str) -> str:
    """The longest formula of a question; "" where it has none."""
    found = ["".join(groups).strip() for groups in FORMULA.findall(question)]
    return max(found, key=len, default="").rstrip(".,;:?")


def bare(text: str) -> str:
    """A text without spaces, sizes and dollar signs."""
    return re.sub(r"[\s$.]|\\[,;! ]|\\left|\\right|(?<=\\)[dt](?=frac)", "", text)


def is_print(one: str, other: str) -> bool:
    """Whether two texts differ in their print alone."""
    return bare(one) == bare(other)


# The kinds of rows. What a generator of them takes as sources may be empty.


def labelled(_: Sources, __: random.Random) -> Rows:
    """The tables of the grader's tests and of its benchmark."""
    for name in ("answers", "tricks", "honest"):
        for row in read_table(TABLES / f"{name}.jsonl"):
            yield Row(name, row["prediction"], row["gold"], "", row["right"], {"short": True})
    for row in read_table(TABLES / "completions.jsonl"):
        yield Row("completions", row["prediction"], row["gold"], "", row["right"])
    for row in read_table(TABLES / "classes.jsonl"):
        text, settings = THOUGHT + row["prediction"], {"final_number": row["class"] == "final"}
        question = row.get("question", "")
        yield Row("classes", text, row["gold"], question, row["right"], settings)
    for name in ("rules", "labelled"):
        for row in read_table(TABLES / f"{name}.jsonl"):
            flag = row.get("think_prefilled", False) if name == "rules" else None
            settings, asked = {"think_prefilled": flag}, row.get("question", "")
            yield Row(name, row["completion"], row["gold"], asked, row["right"], settings)
    for name, path in (("values", TABLES / "values.jsonl"), ("expressions", TABLE)):
        for row in read_table(path):
            yield Row(name, boxed(row["prediction"]), row["gold"], "", row["right"])


READINGS: dict[str, dict[str, Any]] = {
    "box": {},
    "answer_tags": {"answer_form": "tags"},
    "bare_box": {"answer_form": "bare_box"},
    "hashes": {"answer_form": "hashes"},
    "final_number": {"final_number": True},
    "short": {"short": True},
}


def readings(_: Sources, __: random.Random) -> Rows:
    """Completions in all forms; the gold is what should be read."""
    for row in read_table(TABLES / "readings.jsonl"):
        if row["form"] in READINGS:
            gold, earns = row["prediction"] or "5", row["status"] == "ok"
            yield Row("readings", row["text"], gold, "", earns, READINGS[row["form"]])


def solutions(sources: Sources, rng: random.Random) -> Rows:
    """What people wrote."""
    settings = {"think_prefilled": None}
    for name in ("gsm8k-train", "gsm8k-test", "math-test", "math500", "numina"):
        for one in some(sources.get(name, []), 4_500, rng):
            text = re.sub(r"#### (.*)", r"The answer is \\boxed{\1}.", one.solution)
            if last_box(text):
                yield Row(f"solutions {name}", text, one.gold, one.question, True, settings)


def golds(sources: Sources, rng: random.Random) -> Rows:
    """Golds against themselves: few plain numbers, many others."""
    for name, problems in sources.items():
        plain = [one for one in problems if re.fullmatch(r"-?[\d,.]+", one.gold)]
        others = [one for one in problems if not re.fullmatch(r"-?[\d,.]+", one.gold)]
        for one in some(plain, 100, rng) + some(others, 1_100, rng):
            yield Row(f"golds {name}", boxed(one.gold), one.gold, one.question, True)


def other_golds(sources: Sources, rng: random.Random) -> Rows:
    """The gold of another row of the set, and of another that looks alike but for its digits."""
    for problems in sources.values():
        alike: dict[str, list[str]] = {}
        for one in problems:
            alike.setdefault(re.sub(r"\d+", "0", one.gold), []).append(one.gold)
        for one in some(problems, 150, rng):
            near = rng.choice(alike[re.sub(r"\d+", "0", one.gold)])
            for kind, other in (("other golds", rng.choice(problems).gold), ("near golds", near)):
                if not is_print(one.gold, other):
                    yield Row(kind, boxed(other), one.gold, one.question, False)


def changed_golds(sources: Sources, rng: random.Random) -> Rows:
    """Golds with another digit, sign, bracket or letter; and in other print."""
    for one in pooled(sources, 90, rng):
        digits = [found.start() for found in re.finditer(r"\d", one.gold)]
        if digits:
            at = rng.choice(digits)
            other = f"{one.gold[:at]}{(int(one.gold[at]) + 1) % 10}{one.gold[at + 1 :]}"
            yield Row("changed golds", boxed(other), one.gold, one.question, False)
        made = {rule.sub(new, one.gold, count=1) for rule, new in rules("other_value")}
        for other in some(sorted(made - {one.gold}), 2, rng):
            yield Row("changed golds", boxed(other), one.gold, one.question, False)
        made = {rule.sub(new, one.gold) for rule, new in rules("same_print")}
        for other in some(sorted(made - {one.gold}), 2, rng):
            yield Row("same print", boxed(other), one.gold, one.question, True)
        at = rng.randrange(len(one.gold))
        other = one.gold[:at] + rng.choice(pieces("leaves")) + one.gold[at + rng.randrange(2) :]
        yield Row("garbled golds", boxed(other), one.gold, one.question)


def say(one: Problem, other: str, templates: list[str], earns: bool) -> Rows:
    """The gold in sentences, with the gold of another row where they have one."""
    kind = "correct sentences" if earns else "incorrect sentences"
    for template in templates if not is_print(one.gold, other) else []:
        text = fill(template, {"@": one.gold, "#": other, "⏎": "\n"})
        yield Row(kind, THOUGHT + text, one.gold, one.question, earns)


def sentences(sources: Sources, rng: random.Random) -> Rows:
    """The gold in a sentence that says it, and in one that denies it or leaves a choice."""
    for problems in sources.values():
        for one in some(problems, 45, rng):
            other = rng.choice(problems).gold
            chinese = HAN if HAN.search(one.question) else re.compile("")
            for kind, num in (("correct", 3), ("incorrect", 4)):
                templates = [line for line in pieces(kind) if chinese.search(line)]
                yield from say(one, other, some(templates, num, rng), kind == "correct")


def fixed(sources: Sources, rng: random.Random) -> Rows:
    """Answers that a policy may write to any question, where they do not say the gold."""
    for row in read_table(TABLES / "fixed.jsonl"):
        for one in pooled(sources, 2, rng):
            if not any(is_print(row[key], one.gold) for key in ("answer", "says")):
                yield Row("fixed answers", boxed(row["answer"]), one.gold, one.question, False)


def copies(sources: Sources, rng: random.Random) -> Rows:
    """A formula of the question, as it stands, written again, and with something around it."""
    path = TABLES / "decorations.txt"
    around = path.read_text(encoding="utf-8").splitlines() + pieces("decorations")
    again = rules("same_work")
    pool = [one for problems in sources.values() for one in problems if formula_of(one.question)]
    asked = some([one for one in pool if TASK.search(one.question)], 250, rng)
    for kind, problems, num in (
        ("copies where asked to work", asked, 12),
        ("copies", some(pool, 250, rng), 6),
    ):
        for one in problems:
            work = formula_of(one.question)
            made = [work, *(rule.sub(new, work) for rule, new in again)]
            made += [template.replace("@", work) for template in some(around, num, rng)]
            made += [template.replace("@", rng.choice(made)) for template in some(around, 3, rng)]
            for other in dict.fromkeys(made):
                if not is_print(other, one.gold):
                    yield Row(kind, boxed(other), one.gold, one.question, False)


def sums(sources: Sources, rng: random.Random) -> Rows:
    """Arithmetic that is left to do: a solution's last step, a gold taken apart; a suffix to it."""
    path = TABLES / "decorations.txt"
    around = path.read_text(encoding="utf-8").splitlines()
    for one in pooled(sources, 45, rng):
        made = []
        if (step := LAST_SUM.search(one.solution)) and step[2] == one.gold:
            made += [step[1], step[1].replace("*", "\\times ")]
        if re.fullmatch(r"\d{1,7}", one.gold) and int(one.gold) > 3:
            g = int(one.gold)
            values = {"G": g, "M": g - 1, "P": g + 1, "D": 2 * g, "T": 10 * g, "S": g * g}
            made += [fill(line, values) for line in some(pieces("left_to_do"), 3, rng)]
        elif parts := re.fullmatch(r"\\[dt]?frac\{(\d+)\}\{(\d+)\}", one.gold):
            a, b = int(parts[1]), int(parts[2])
            values = {"A": a, "B": b, "M": a - 1, "P": a + 1, "D": 2 * a, "E": 2 * b}
            values |= {"N": b - 1, "R": b - a}
            made += [fill(line, values) for line in some(pieces("fraction_left_to_do"), 4, rng)]
        for work in made:
            for template in ("@", *some(around, 2, rng)):
                other = boxed(template.replace("@", work))
                yield Row("left to do", other, one.gold, one.question, False)
            yield Row("left to do, no question", other, one.gold)


def drawn_sums(_: Sources, rng: random.Random) -> Rows:
    """Questions with a sum: its copy, in another order, and its value."""
    for _draw in range(150):
        root, factor, term = rng.randint(2, 30), rng.randint(2, 9), rng.randint(1, 99)
        parts = [rf"{factor}\sqrt{{{root * root}}}", str(term)]
        gold, question = str(root * factor + term), f"Evaluate ${'+'.join(parts)}$."
        for other in ("+".join(parts), "+".join(parts[::-1]), f"{factor}\\cdot {root}+{term}"):
            yield Row("drawn sums", boxed(other), gold, question, False)
        for other in (gold, f"{gold}.0"):
            yield Row("drawn sums", boxed(other), gold, question, True)


def options(sources: Sources, rng: random.Random) -> Rows:
    """Multiple choice: the letter or the value of an option, correct and not; of A to F to K."""
    pattern = re.compile(r"\(([A-E])\)\s*(.+)")
    for one in sources.get("arc", []):
        listed, shift = dict(pattern.findall(one.question)), rng.choice([0, 0, 5])
        letters = {old: chr(ord(old) + shift) for old in listed}
        lines = [f"({letters[old]}) {value}" for old, value in listed.items()]
        question = "\n".join([pattern.sub("", one.question).strip(), *lines])
        gold = letters[one.gold]
        for old in (one.gold, rng.choice([old for old in listed if old != one.gold])):
            letter, value = letters[old], listed[old].rstrip(".")
            said = [letter, f"\\text{{{letter}}}", f"({letter})", letter.lower()]
            said += [f"\\text{{{value}}}", f"\\text{{({letter}) {value}}}"]
            for other in said:
                yield Row("options", boxed(other), gold, question, old == one.gold)
    for one in sources.get("numina", []):
        if re.fullmatch("[A-E]", one.gold):
            for letter in "ABCDE":
                yield Row("options", boxed(letter), one.gold, one.question, letter == one.gold)


def units(sources: Sources, rng: random.Random) -> Rows:
    """The gold with the unit that the question asks for, and with one that it does not name."""
    known = pieces("units")
    asked = re.compile(rf"[Hh]ow many ({'|'.join(known)})\b")
    pool = [one for problems in sources.values() for one in problems if asked.search(one.question)]
    pool = [one for one in pool if re.fullmatch(r"[\d.,]+", one.gold)]
    for one in some(pool, 250, rng):
        own = asked.findall(one.question)[0]
        others = [unit for unit in known if unit[:-1] not in one.question.lower()]
        for unit in (own, *some(others, 2, rng)):
            for other in (f"{one.gold} {unit}", f"{one.gold}\\text{{ {unit}}}"):
                yield Row("units", boxed(other), one.gold, one.question, unit == own)


def strategies(sources: Sources, rng: random.Random) -> Rows:
    """What can be written from the numbers of a word problem alone."""
    names = ("gsm8k-train", "gsm8k-test", "svamp", "mawps", "aime")
    for one in pooled({name: sources.get(name, []) for name in names}, 120, rng):
        numbers = [number.rstrip(",") for number in NUMBER.findall(one.question)]
        if len(numbers) > 1:
            values = {"A": numbers[0], "B": numbers[1], "Z": numbers[-1]}
            for template in some(pieces("strategies"), 5, rng):
                text = boxed(fill(template, values))
                yield Row("strategies", text, one.gold, one.question, False)
            for template in pieces("guesses"):
                yield Row("guesses", boxed(fill(template, values)), one.gold, one.question)


def compose(rng: random.Random, depth: int = 0) -> str:
    """A random composition, three pieces deep at most."""
    if depth > 3 or rng.random() < 0.3:
        return rng.choice(pieces("leaves"))
    joint = rng.choice(pieces("joints"))
    return re.sub("@", lambda _: compose(rng, depth + 1), joint)


def compositions(sources: Sources, rng: random.Random) -> Rows:
    """Random compositions for another, for themselves, for a gold, and half of one."""
    golds = ["5", *(one.gold for one in pooled(sources, 100, rng))]
    for _draw in range(800):
        one, other, gold = compose(rng), compose(rng), rng.choice(golds)
        question = f"Compute ${compose(rng)}$."
        yield Row("compositions", boxed(one), other, question)
        yield Row("compositions", one, gold, question, None, {"short": True})
        yield Row("compositions", boxed(one[: rng.randrange(len(one) + 1)]), gold, question)
        yield Row("compositions of themselves", boxed(one), one)


def bombs(_: Sources, rng: random.Random) -> Rows:
    """What may cost much time or memory, as prediction, gold and question."""
    for text in HOSTILE:
        text = text.replace("K", str(rng.randrange(100, 1_000)))
        yield Row("bombs", boxed(text), "7", "", False)
        yield Row("bombs", boxed("7"), text, f"Compute ${text}$.", False)
    for line in pieces("bombs"):
        first, last = line.split(" ") if " " in line else (line, "")
        for length in (200, 5_000, 1_000_000):
            num = length // len(first)
            text = first * num + "7" + last * num
            yield Row("bombs", boxed(text), "5", "", False)
            yield Row("bombs", boxed("5"), text, f"Compute ${text}$.", False)
            yield Row("bombs", text, "5", "", False, {"think_prefilled": None})


KINDS: tuple[Callable[[Sources, random.Random], Rows], ...] = (
    *(labelled, readings, solutions, golds, other_golds, changed_golds, sentences, fixed, copies),
    *(sums, drawn_sums, options, units, strategies, compositions, bombs),
)


def make_rows(sources: Sources) -> Rows:
    """All rows, kind by kind; a source that is missing has none."""
    for kind in KINDS:
        yield from kind(sources, random.Random(kind.__name__))
