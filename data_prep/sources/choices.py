"""Multiple choice: how GPQA and ARC show their options and name the right one."""

from data_prep.config import UserError

LETTERS = "ABCDE"
INSTRUCTION = "Answer with the letter of the right option."


def show_options(question: str, options: list[str]) -> str:
    """The question, one line `A. …` per option, and what is asked for.

    How to write the answer is the system prompt's business; that it is a letter is part of the
    question, because without it the option's text would be as good an answer.

    Args:
        question: without the options.
        options: 2 to 5; white space in them, line ends too, becomes single blanks.
    """
    lines = [
        f"{letter}. {' '.join(option.split())}"
        for letter, option in zip(LETTERS, options, strict=False)
    ]
    return "\n".join([question.strip(), "", *lines, "", INSTRUCTION])


def check_options(options: object, column: str, counts: range, where: str) -> list[str]:
    """The options as they are; raises `UserError` unless they are as many texts as `counts`."""
    is_texts = isinstance(options, list) and all(
        isinstance(option, str) and option.strip() for option in options
    )
    if not is_texts or len(options) not in counts:
        number = " to ".join(str(n) for n in sorted({counts[0], counts[-1]}))
        raise UserError(f"{where}: {column}: {options!r:.80} is not {number} texts; fix the row")
    return options
