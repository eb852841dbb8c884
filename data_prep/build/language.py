"""Which natural language a question is written in, as far as its prose tells. py3langid decides.

Formulas say nothing and make short questions look foreign ("Write $4.3+3.88$ as a decimal." scores
best as Portuguese), so LaTeX goes first, and English-looking prose is called foreign only when it
is long enough and clearly so. docs/data.md has how often it errs.
"""

import functools
import re

# What question sets of mathematics come in; more would only add confusions.
LANGUAGES = (
    "en", "zh", "ja", "ko", "ru", "uk", "es", "fr", "de", "pt", "it", "nl", "pl", "cs", "hu", "ro",
    "tr", "vi", "id", "ar", "fa", "he", "hi", "th", "el", "sv", "bg",
)  # fmt: skip
MIN_LETTERS = 40  # of Latin prose: below, nothing is known
MIN_MARGIN = 10.0  # nats of log-probability over the best language that is allowed

_FORMULA = re.compile(
    r"\$\$.*?\$\$|\$.*?\$|\\\[.*?\\\]|\\\(.*?\\\)|\[asy\].*?\[/asy\]"
    r"|\\begin\{(\w+\*?)\}.*?\\end\{\1\}|\\operatorname\{\w*\}|\\[A-Za-z]+|https?://\S+",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+")
# Scripts that no English question is written in. Greek letters are mathematics.
_FOREIGN_LETTER = re.compile(
    "[\u0400-\u052f\u0590-\u06ff\u0900-\u0dff\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]"
)


@functools.cache
def _identifier():
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
    identifier.set_languages(list(LANGUAGES))
    return identifier


def find_foreign(question: str, allowed: tuple[str, ...]) -> str | None:
    """The language of a question that is in none of the `allowed`; None where it is, or may be.

    Args:
        question: with its LaTeX.
        allowed: of `LANGUAGES`.
    """
    words = _WORD.findall(_FORMULA.sub(" ", question))
    prose = " ".join(word for word in words if len(word) > 1 or _FOREIGN_LETTER.match(word))
    num_foreign = len(_FOREIGN_LETTER.findall(prose))
    # A foreign name in an English question is no foreign question.
    is_foreign_script = num_foreign > 0.2 * max(1, len(prose))
    if not is_foreign_script and len(prose) < MIN_LETTERS:
        return None
    ranked = _identifier().rank(prose)
    best, score = ranked[0]
    allowed_score = max(value for name, value in ranked if name in allowed)
    needed = 0.0 if is_foreign_script else MIN_MARGIN
    return best if best not in allowed and score - allowed_score > needed else None
