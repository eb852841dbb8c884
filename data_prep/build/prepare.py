"""From rows to checked problems, a chunk at a time: the part of the build that runs in parallel.

Everything here depends on the row alone, so that chunks can go to any process in any order; what
depends on other rows is done by `data_prep.build.clean`, in the order of the rows.
"""

import dataclasses
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from data_prep.build.duplicates import signature
from data_prep.build.mixing import Limits
from data_prep.build.policies import Policies, check_language, check_lengths, check_problem
from data_prep.build.recipe import Source
from data_prep.config import UserError
from data_prep.decontamination.contamination import EvalIndex, EvalQuestion, Match
from data_prep.decontamination.matching import tokenise
from data_prep.decontamination.normalise import question_key, text_keys, without_options
from data_prep.reading.reading import BadRow, Row
from data_prep.schema import Problem
from data_prep.sources import Drop
from data_prep.sources.builders import BUILDERS


@dataclass(frozen=True, slots=True)
class Kept:
    """A problem that passed, and what finding its duplicates takes.

    Args:
        key: of the normalised question and the trace number, 16 bytes.
        signature: MinHash keys as bytes; empty where near duplicates are not looked for.
        band: easy, medium, hard or None.
        is_rated: its pass rate is one of those that were measured.
    """

    problem: Problem
    where: str
    key: bytes
    signature: bytes
    band: str | None
    is_rated: bool


@dataclass(frozen=True, slots=True)
class Dropped:
    """A row that is left out: why, and enough of it to look at."""

    where: str
    reason: str
    detail: str = ""
    id: str = ""
    question: str = ""
    answer: str = ""
    match: Match | None = None
    is_rated: bool = False
    num_rows: int = 1  # that a damaged part of a file stands for


@dataclass(frozen=True)
class Job:
    """What is to be done with the rows of one source; sent to the workers with every chunk.

    Args:
        part: middle of the ids, see `data_prep.build.recipe.id_parts`.
        checks_contamination: compare with the evaluation questions.
        skips_bad_rows: count bad rows instead of raising `UserError`.
    """

    source: Source
    part: str
    policies: Policies
    checks_contamination: bool = False
    skips_bad_rows: bool = False
    finds_near_duplicates: bool = False


EXCERPT = 1000  # characters of a row that its source drops

Item = tuple[int, str, Row | BadRow | Problem]  # position from 0, where, what was read
Result = tuple[list[Kept | Dropped], Counter[str]]  # one for each item; seconds by step


class Clock:
    """Seconds of each step, by laps."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._last = time.perf_counter()

    def lap(self, step: str) -> None:
        """Count the time since the last lap as `step`'s."""
        now = time.perf_counter()
        self.seconds[step] += now - self._last
        self._last = now


class Preparer:
    """Checks rows against policies and evaluation questions.

    Args:
        questions: of evaluation sets, which must not occur in the training sets.
        pass_rates: `{id: rate}`, measured by `stages.difficulty`; they replace the rows' own.
    """

    def __init__(self, questions: Sequence[EvalQuestion], pass_rates: dict[str, float]) -> None:
        self._index = EvalIndex(questions) if questions else None
        # An equal text is a match whatever the n-grams say of it.
        self._exact = {key: one for one in questions for key in text_keys(one.question)}
        self._pass_rates = pass_rates

    def prepare(self, job: Job, items: Sequence[Item]) -> Result:
        """Turn rows into kept or dropped problems, one for each, in order.

        Raises:
            UserError: a bad row, unless the job skips them.
        """
        clock = Clock()
        source = job.source
        limits = Limits(
            source.min_level, source.max_level, source.min_pass_rate, source.max_pass_rate
        )
        found = [self._prepare(job, limits, *item, clock) for item in items]
        return found, clock.seconds

    def _prepare(
        self,
        job: Job,
        limits: Limits,
        position: int,
        where: str,
        row: Row | BadRow | Problem,
        clock: Clock,
    ) -> Kept | Dropped:
        problem = self._build(job, position, where, row)
        clock.lap("build")
        if isinstance(problem, Dropped):
            return problem
        drop: Drop | None = None
        golds = check_problem(problem, job.policies, limits)
        clock.lap("gold and kind")
        if isinstance(golds, Drop):
            drop = golds
        else:
            problem = dataclasses.replace(problem, answer=golds[0], other_answers=tuple(golds[1:]))
            drop = check_language(problem, job.policies)
            clock.lap("language")
            drop = drop or check_lengths(problem, job.policies)
            clock.lap("length")
        match = None
        if drop is None and self._index and job.checks_contamination:
            match = self._find_match(problem)
            clock.lap("decontamination")
            if match:
                drop = Drop("in_eval_set", f"{match.benchmark} {match.id}")
        if drop:
            is_rated = problem.id in self._pass_rates
            texts = (problem.id, problem.question, problem.answer)
            return Dropped(where, drop.reason, drop.detail, *texts, match, is_rated)
        keys = signature(tokenise(problem.question)).tobytes() if job.finds_near_duplicates else b""
        bands = job.source.bands()
        band = bands.find(problem.level, problem.pass_rate) if bands else None
        key = question_key(problem.question, problem.trace)
        kept = Kept(problem, where, key, keys, band, is_rated=problem.id in self._pass_rates)
        clock.lap("signature")
        return kept

    def _find_match(self, problem: Problem) -> Match | None:
        question = without_options(problem.question)
        for key in text_keys(question):
            if same := self._exact.get(key):
                kind = "exact" if isinstance(key, bytes) else "same letters"
                return Match(same.benchmark, same.id, same.question, 1.0, kind)
        if problem.source == "synthetic":
            return None  # its splits share no numbers, and its template makes all look alike
        return self._index.find(question, problem.answers)

    def _build(
        self, job: Job, position: int, where: str, row: Row | BadRow | Problem
    ) -> Problem | Dropped:
        source = job.source
        if isinstance(row, Problem):
            built: Problem | Drop = row
        else:
            try:
                if isinstance(row, BadRow):
                    raise UserError(row.message)
                name = f"{source.name}-{job.part}-{position}"
                built = BUILDERS[source.name](row, name, where, **source.builder_options())
            except UserError as error:
                if not job.skips_bad_rows:
                    raise UserError(f"{error} (or leave it out: --on_bad_row skip)") from error
                num_rows = row.num_rows if isinstance(row, BadRow) else 1
                return Dropped(where, "bad_row", str(error), num_rows=num_rows)
        if isinstance(built, Drop):
            detail = "" if built.detail == where else built.detail.removeprefix(f"{where}: ")
            text = json.dumps(row, ensure_ascii=False, default=str)
            return Dropped(where, built.reason, detail, question=text[:EXCERPT])
        if built.id in self._pass_rates:
            built = dataclasses.replace(built, pass_rate=self._pass_rates[built.id])
        return built
