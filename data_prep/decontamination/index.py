"""Decontamination: training questions that occur in an evaluation set, in this or other words.

Shared n-grams propose, an alignment decides (docs/results/decontamination.md compares the rules of
GPT-3, Qwen2.5-Math and Tulu 3). The n-grams are short, over words that carry content, and only name
candidates. A candidate counts if the numbers of the evaluation question recur and enough of its
words align in order. The threshold is lower if the golds are one value. A copy may have other text
in between, its sentences in another order, or a part left out. Its words still come in runs, which
are laid side by side like tiles (`_not_in`).
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from rapidfuzz.distance import LCSseq, Levenshtein, Prefix

from data_prep.decontamination.benchmarks import BENCHMARKS, load_benchmark
from data_prep.decontamination.text import (
    content,
    numbers,
    sentences,
    text_keys,
    tokenise,
    without_options,
)
from data_prep.schema import Problem
from grading.compare import is_same_value
from pipeline.console import notice
from pipeline.errors import UserError

# Measured, see docs/results/decontamination.md. Lengths are in words that carry content.
NGRAM = 4
MAX_POSTINGS = 40  # more questions share only stock phrases
MAX_CANDIDATES = 6
MIN_SHARED = 0.1  # of the n-grams of the evaluation question
MIN_COVERAGE = 0.6  # of its words aligned, where the golds are one value
MIN_CLOSE = 0.85  # the same where a number or two came or went
LONG = 15  # questions that may gain or lose so many numbers:
STRAY = 2
MIN_HELD = 0.9  # of the training question, where it is the evaluation question cut short
DISTINCT = 20  # questions that no longer one holds by chance, whatever its gold
PIECE = 3  # words of a piece, when the pieces of a question are put together in another order
MAX_LEFT = 0.15  # of its words that no piece holds
MIN_PART = 6  # words of an evaluation question cut short
MIN_PART_SHARE = 0.4  # of its words, or DISTINCT of them
MAX_AROUND = 6  # words before the question, or around a short one
SHORT = 10  # questions, of which what is asked may be all in a figure
GAP_COST = 0.5
# Up to so many letters a token may be a name of a formula (x, ABC, sin), which has its place.
MAX_SYMBOL = 3
MIN_SPELLING = 6  # words of fewer letters are often other words when one differs (prime, prize)
MAX_MISSPELT = 6  # more words than that are no slips
# A statement that another question has by chance is shorter, or has a shorter formula.
LONG_RUN = 18
LONG_FORMULA = 8
MIN_RETOLD = 0.85  # of the words of the shorter question
FIGURE_WORDS = frozenset(("diagram", "figure", "shown", "graphed", "picture", "below"))


@dataclass(frozen=True, slots=True)
class Match:
    """The evaluation question that a training question repeats.

    Args:
        benchmark, id, question: of the evaluation question.
        score: share of its words that the training question has in the same order, 0..1.
        kind: "exact" (the same words), "embedded" (all of it inside a longer text), "reworded" (in
            other words, in pieces or in part), or "same letters" (signs may have been lost).
    """

    benchmark: str
    id: str
    question: str
    score: float
    kind: str


class EvalIndex:
    """Finds evaluation questions in training questions; the `source` of each is its benchmark."""

    def __init__(self, questions: Sequence[Problem]) -> None:
        self._questions = list(questions)
        # An equal text is a match whatever the n-grams say of it.
        self._texts = {key: one for one in questions for key in text_keys(one.question)}
        self._words = [content(tokenise(one.question)) for one in self._questions]
        self._numbers = [Counter(numbers(words)) for words in self._words]
        self._exact: dict[tuple[str, ...], list[int]] = defaultdict(list)
        postings: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, words in enumerate(self._words):
            self._exact[tuple(words)].append(at)
            for gram in _ngrams(words):
                postings[gram].append(at)
        self._postings = {gram: ats for gram, ats in postings.items() if len(ats) <= MAX_POSTINGS}

    def find_repeated(self, problem: Problem) -> Match | None:
        """The evaluation question that a problem repeats, in the same text or in other words."""
        question = without_options(problem.question)
        for key in text_keys(question):
            if same := self._texts.get(key):
                kind = "exact" if isinstance(key, bytes) else "same letters"
                return Match(same.source, same.id, same.question, 1.0, kind)
        if problem.source == "synthetic":
            return None  # its splits share no numbers, and its template makes all look alike
        return self.find(question, problem.answers)

    def find(self, question: str, answers: Sequence[str]) -> Match | None:
        """The evaluation question that `question` repeats best; the same gold lowers the bar."""
        words = content(tokenise(question))
        if not words:
            return None
        exact = self._exact.get(tuple(words), [])
        for at in exact:
            # The same words may ask for something that is all in a figure.
            theirs = self._questions[at].answers
            if not asks_about_figure(self._words[at]) or _share_gold(answers, theirs):
                return self._match(at, 1.0, "exact")
        best = None
        for at in self._candidates(words):
            score, kind = self._compare(at, words, answers)
            if not kind:
                pieces = self._is_in_pieces(at, question, words, answers)
                if pieces:
                    score, kind = pieces, "reworded"
            if not kind and is_retold(self._words[at], words):
                kind = "reworded"
            if kind and at not in exact and (best is None or score > best.score):
                best = self._match(at, score, kind)
        return best

    def _candidates(self, words: list[str]) -> list[int]:
        """The questions of whose n-grams the largest shares are there."""
        hits: Counter[int] = Counter()
        for gram in _ngrams(words):
            hits.update(self._postings.get(gram, ()))
        shares = {}
        for at, count in hits.items():
            shares[at] = count / max(1, len(self._words[at]) - NGRAM + 1)
        best = sorted(shares, key=lambda at: (-shares[at], at))[:MAX_CANDIDATES]
        return [at for at in best if shares[at] >= MIN_SHARED]

    def _is_in_pieces(
        self, at: int, question: str, words: list[str], answers: Sequence[str]
    ) -> float:
        """The share of a candidate's words that are there in pieces, in any order; 0.0 if too few.

        None of its numbers and signs may be missing. A short one, or one with another gold, must be
        there with all of its sentences.
        """
        theirs = self._words[at]
        is_short = len(theirs) < SHORT
        if not self._numbers[at] <= Counter(numbers(words)):
            return 0.0
        left = _not_in(theirs, words)
        is_prose = all(word.isalpha() and len(word) > 1 for word in left)
        if not is_prose or len(left) > MAX_LEFT * len(theirs):
            return 0.0
        has_all = not left and (len(theirs) >= DISTINCT or self._has_sentences(at, question))
        if has_all and len(theirs) >= MIN_PART and FIGURE_WORDS.isdisjoint(theirs):
            return 1.0
        if is_short and not has_all:
            return 0.0
        if not _share_gold(answers, self._questions[at].answers):
            return 0.0
        return 1 - len(left) / len(theirs)

    def _has_sentences(self, at: int, question: str) -> bool:
        """Whether every sentence of a candidate is one of the question's."""
        theirs = Counter(map(tuple, _by_sentence(self._questions[at].question)))
        return theirs <= Counter(map(tuple, _by_sentence(question)))

    def _compare(self, at: int, words: list[str], answers: Sequence[str]) -> tuple[float, str]:
        """(coverage, kind) of a candidate; the kind is "" where it is another question."""
        theirs = self._words[at]
        same, start, stop = _align(theirs, words)
        aligned = len(same)
        coverage = aligned / len(theirs)
        span = words[start:stop]
        likeness = 2 * aligned / (len(theirs) + len(span))
        is_held = aligned >= max(
            MIN_HELD * len(words), min(DISTINCT, max(MIN_PART, MIN_PART_SHARE * len(theirs)))
        )
        if not is_held and min(coverage, likeness) < MIN_COVERAGE:
            return coverage, ""
        is_same_gold = _share_gold(answers, self._questions[at].answers)
        placed, mine = numbers(same), Counter(numbers(span))
        # What comes before it may begin with the problem's number in a book.
        has_no_other = Counter(numbers(words[min(start, 1) :])) <= self._numbers[at]
        is_part = is_held and is_same_gold and has_no_other
        if is_part and (len(placed) == mine.total() or not numbers(_not_in(span, theirs))):
            return coverage, "reworded"
        if min(coverage, likeness) < MIN_COVERAGE:
            return coverage, ""
        is_short = len(theirs) < SHORT
        most_around = MAX_AROUND if is_same_gold else 0
        if is_short and len(words) - len(span) > most_around:
            return coverage, ""
        if same_wording(theirs, span):
            return coverage, "embedded"
        if is_short or not is_same_gold:
            return coverage, ""
        missing, more = (self._numbers[at] - mine).total(), (mine - self._numbers[at]).total()
        if missing == more == 0:
            # One number may have moved; two may have changed places.
            is_same = mine.total() - len(placed) <= 1 or not numbers(_not_in(theirs, words))
        else:
            # What is missing may have become another number elsewhere, or come from elsewhere.
            is_whole = has_no_other if missing else len(placed) == self._numbers[at].total()
            is_close = likeness >= MIN_CLOSE and missing + more <= STRAY
            is_same = is_whole and is_close and min(missing, more) == 0 and len(theirs) >= LONG
        return coverage, "reworded" if is_same else ""

    def _match(self, at: int, score: float, kind: str) -> Match:
        one = self._questions[at]
        return Match(one.source, one.id, one.question, round(score, 4), kind)


def _align(theirs: list[str], words: list[str]) -> tuple[list[str], int, int]:
    """Where `theirs` occurs in `words`: words in common, first position, last position plus one.

    A common subsequence also picks up single words far from the rest. Of its runs those are kept
    that together have most words, less half of the words between them (Kadane's maximum).
    """
    runs = [run for run in LCSseq.opcodes(theirs, words) if run.tag == "equal"]
    first, score, best_score = 0, 0.0, 0.0
    for at, run in enumerate(runs):
        score -= GAP_COST * (run.dest_start - runs[at - 1].dest_end)
        if at == 0 or score <= 0:
            first, score = at, 0.0
        score += run.dest_end - run.dest_start
        if score > best_score:
            best, best_score = runs[first : at + 1], score
    # What took the place of missing first and last words belongs to it.
    start = max(0, best[0].dest_start - best[0].src_start)
    stop = min(len(words), best[-1].dest_end + len(theirs) - best[-1].src_end)
    return [word for run in best for word in words[run.dest_start : run.dest_end]], start, stop


def _by_sentence(question: str) -> list[list[str]]:
    found = [content(tokenise(sentence)) for sentence in sentences(question)]
    return [words for words in found if words]


def _not_in(theirs: list[str], words: list[str]) -> list[str]:
    """The words of `theirs` that are in no run of `PIECE` words of both; each is used once."""
    words, left, at = list(words), [], 0
    starts = defaultdict(list)
    for start in range(len(words) - PIECE + 1):
        starts[tuple(words[start : start + PIECE])].append(start)
    while at < len(theirs):
        rest = theirs[at:]
        found = starts.get(tuple(rest[:PIECE]), ())[:MAX_POSTINGS]
        sizes = [(Prefix.similarity(rest, words[i : i + len(rest)]), i) for i in found]
        size, start = max(sizes, default=(0, 0))
        if size < PIECE:
            left.append(theirs[at])
            at += 1
        else:
            words[start : start + size] = [""] * size
            at += size
    return left


def _share_gold(mine: Sequence[str], theirs: Sequence[str]) -> bool:
    """Whether golds say that two questions are one; letters and words like "even" say nothing."""
    for gold in theirs:
        if any(map(str.isdigit, gold)):
            forms = _integer_forms(gold)
            if any(is_same_value(answer, gold) or answer in forms for answer in mine):
                return True
    return False


def _integer_forms(gold: str) -> list[str]:
    """The integers that competitions ask for instead of a gold.

    m+n for m/n, p+q for p\\sqrt{q} (or 1+q where p is left out), the sum of several values, and as
    in AIME the absolute value, or the remainder by 1000.
    """
    parts = [int(digits) for digits in re.findall(r"\d{1,9}", gold)]
    if re.fullmatch(r"-?\d{1,9}", gold):
        return [str(parts[0]), str(parts[0] % 1000)]
    if "sqrt" in gold or "pi" in gold:
        return [str(sum(parts)), str(sum(parts) + 1)]
    if len(parts) > 1 and re.search(r"frac|[/,]", gold):
        return [str(sum(parts))]
    return []


def _ngrams(words: list[str]) -> set[tuple[str, ...]]:
    """The distinct n-grams of the words; all of them where there are fewer than n."""
    if len(words) < NGRAM:
        return {tuple(words)}
    return set(zip(*(words[start:] for start in range(NGRAM)), strict=False))


def same_wording(first: list[str], second: list[str]) -> bool:
    """Whether two lists of content words ask the same.

    Formulas must be the same in the same order: 2x+3 is not 3x+2. No word may be exchanged, added
    or removed (minimum and maximum, not, positive), apart from spelling. One word may move, but not
    past a number: 2 girls and 3 boys are not 2 boys and 3 girls.
    """
    if first == second:
        return True
    if formula(first) != formula(second):
        return False
    second = _respelt(first, second)
    left, extra = _difference(first, second)
    # What is left may be one word that is written in two (side length).
    if sorted("".join(left)) != sorted("".join(extra)):
        return False
    runs = [run for run in LCSseq.opcodes(first, second) if run.tag != "equal"]
    gone = [at for run in runs for at in range(run.src_start, run.src_end)]
    come = [at for run in runs for at in range(run.dest_start, run.dest_end)]
    moved = [(first[at], len(numbers(first[:at]))) for at in gone if first[at] not in left]
    moved_to = [(second[at], len(numbers(second[:at]))) for at in come if second[at] not in extra]
    return moved == moved_to and len(moved) <= 1


def _difference(first: list[str], second: list[str]) -> tuple[list[str], list[str]]:
    mine, theirs = Counter(first), Counter(second)
    return list((mine - theirs).elements()), list((theirs - mine).elements())


def _respelt(first: list[str], second: list[str]) -> list[str]:
    """The second list with the slips and endings of the first."""
    left, extra = _difference(first, second)
    if not left or max(len(left), len(extra)) > MAX_MISSPELT:
        return second
    spelling = {}
    for other in extra:
        for word in left:
            is_long = min(len(word), len(other)) >= MIN_SPELLING
            if is_long and Levenshtein.distance(word, other, score_cutoff=1) <= 1:
                spelling[other] = word
                left.remove(word)
                break
    return [spelling.get(word, word) for word in second]


def asks_about_figure(words: list[str], limit: int = SHORT) -> bool:
    """Whether fewer content words than `limit` point to a figure, which may be what is asked."""
    return len(words) < limit and not FIGURE_WORDS.isdisjoint(words)


def is_retold(first: list[str], second: list[str]) -> bool:
    """Whether two lists of content words state one problem and may ask for another form of it.

    They share a long run of words with a complete formula, and the shorter one has little else. The
    numbers of one are among those of the other, and at most one place has other signs.
    """
    num_words = min(len(first), len(second))
    if num_words < LONG_RUN or any(asks_about_figure(words, 10**9) for words in (first, second)):
        return False
    runs = [
        (run.tag, first[run.src_start : run.src_end], second[run.dest_start : run.dest_end])
        for run in LCSseq.opcodes(first, second)
    ]
    same = [words for tag, words, _ in runs if tag == "equal"]
    if not any(len(run) >= LONG_RUN and _longest_formula(run) >= LONG_FORMULA for run in same):
        return False
    mine, theirs = Counter(numbers(first)), Counter(numbers(second))
    # The last run may be what the two ask for.
    changed = [both for tag, *both in runs[:-1] if tag != "equal"]
    signs = [any(not word[0].isalnum() for word in words) for both in changed for words in both]
    is_exchanged = all(any(numbers(both[side]) for both in changed) for side in (0, 1))
    is_most = sum(map(len, same)) >= MIN_RETOLD * num_words
    return is_most and (mine <= theirs or theirs <= mine) and sum(signs) <= 1 and not is_exchanged


def _longest_formula(words: list[str]) -> int:
    groups = groupby(words, lambda word: bool(formula([word])))
    return max((len(list(group)) for is_formula, group in groups if is_formula), default=0)


def formula(tokens: list[str]) -> list[str]:
    """The tokens that have their place: numbers, operators and names as short as x, ABC, sin."""
    return [token for token in tokens if len(token) <= MAX_SYMBOL or not token.isalpha()]


def load_questions(
    names: Iterable[str], if_found: Iterable[str], data_root: str | None
) -> tuple[list[Problem], dict[str, int | str]]:
    """The questions of benchmarks, and for each benchmark how many, or why none.

    `UserError` where one of `names` cannot be had; those `if_found` are taken where they can.
    """
    questions: list[Problem] = []
    counts: dict[str, int | str] = {}
    for name in dict.fromkeys([*names, *if_found]):
        try:
            problems = load_benchmark(BENCHMARKS[name], data_root)
        except UserError as error:
            if name in names:
                raise UserError(f"decontaminate: {name}: {error}") from error
            counts[name] = f"not checked: {error}"
            notice(f"training sets are not checked against {name}: {error}")
            continue
        counts[name] = len(problems)
        for one in problems:
            text = without_options(one.question)
            questions.append(Problem(one.id, name, text, one.answers))
    return questions, counts


def read_questions(name: str, path: Path) -> list[Problem]:
    """The questions of a test or validation file that a build has written."""
    with path.open("rb") as file:
        return [
            Problem(row["id"], name, without_options(row["question"]), tuple(row["answers"]))
            for row in map(json.loads, file)
        ]
