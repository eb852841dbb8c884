r"""Prompts back to bare questions: chat-template tokens and instructions on how to answer go.

One prompt template is applied in one place (`data_prep.prompts`), so whatever a data set has put
around its questions must go first; `data_prep.sources.instructions` does the sentences.
"""

import re

from data_prep.sources.instructions import strip_instructions

_ROLE_NAMES = "system|developer|user|human|assistant|model|gpt"
# R1 and Phi, ChatML and Phi-4, Llama 3, Gemma, gpt-oss. The bars of R1's tokens are fullwidth.
_ROLE = re.compile(
    rf"<[|\uff5c]\s*({_ROLE_NAMES})\s*[|\uff5c]>"
    rf"|<\|im_start\|>\s*({_ROLE_NAMES})\b(?:<\|im_sep\|>)?"
    rf"|<\|start_header_id\|>\s*({_ROLE_NAMES})\s*<\|end_header_id\|>"
    rf"|<start_of_turn>\s*({_ROLE_NAMES})\b"
    rf"|<\|start\|>\s*({_ROLE_NAMES})\b(?:<\|channel\|>\w+)?(?:<\|message\|>)?",
    re.IGNORECASE,
)
_END = re.compile(
    r"(?:<\|(?:im_end|eot_id|end_of_text|end|endoftext|return)\|>|<end_of_turn>|</s>|<eos>"
    r"|<[|\uff5c]end[\u2581_]of[\u2581_](?:sentence|turn|text)[|\uff5c]>)\Z"
)
_PREFILL = re.compile(r"(?:</?think>|<answer>)\Z", re.IGNORECASE)
_BEGIN = re.compile(
    r"\A\s*(?:(?:<s>|<bos>|<\|begin_of_text\|>|\[gMASK\]|<sop>"
    r"|<[|\uff5c]begin[\u2581_]of[\u2581_](?:sentence|text)[|\uff5c]>)\s*)+"
)
_INST = re.compile(r"\[INST\](.*?)(?:\[/INST\]|\Z)", re.DOTALL)
_INST_SYSTEM = re.compile(r"\A\s*<<SYS>>.*?<</SYS>>", re.DOTALL)
# The prompt of R1-Zero and its kin: prose about two speakers, then what the user says.
_DIALOGUE = re.compile(r"\A\s*A conversation between (?:a )?User and (?:an? )?Assistant\b", re.I)
_USER = re.compile(r"(?:^|(?<=[\s.>]))(?:User|Human):\s*")
_ASSISTANT = re.compile(r"(?:^|(?<=[\s.>]))Assistant:\s*")
_PROBLEM_FOLLOWS = re.compile(r"\bThis is the problem:\s*", re.I)
_ALPACA = re.compile(
    r"\A\s*(?:Below is an instruction\b[^#]*)?#{2,3}\s*(?:Instruction|Question|Problem|User|Human)"
    r":(.*?)#{2,3}\s*(?:Response|Answer|Solution|Assistant):(.*)\Z",
    re.DOTALL | re.I,
)
_LABELS = tuple(
    (
        re.compile(rf"\A\s*{asks}\s*:\s*", re.I),
        re.compile(rf"\n[ \t]*{asks}\s*:", re.I),
        re.compile(rf"(?:\A|\n)[ \t]*{answers}\s*:(.*)\Z", re.I | re.DOTALL),
    )
    for asks, answers in (
        ("(?:Question|Problem)", "(?:Answer|Solution|Response)"),
        ("Q", "A"),
        ("(?:Human|User)", "(?:Assistant|AI|Bot)"),
    )
)
_ANSWERED = "text in the assistant's turn"


class SeveralTurns(ValueError):
    """A prompt that holds more than one question, or an answer too."""


def bare_question(text: str) -> str:
    """The question alone, without template tokens and without instructions on how to answer.

    Args:
        text: a question as it is, or a prompt of one user turn in any common template.

    Raises:
        SeveralTurns: several user turns, or a turn of the assistant that says something: examples
            come first, or the answer is there.
    """
    for strip in (_from_inst, _from_tokens, _from_dialogue, _from_alpaca, _from_labels):
        if (turn := strip(text)) is not None:
            text = turn
            break
    return strip_instructions(_strip_end(text, _PREFILL).strip())


def is_prefill(text: str) -> bool:
    """Whether a turn of the assistant is only the beginning of its answer, such as `<think>`."""
    return not strip_instructions(_strip_end(_strip_end(text, _END), _PREFILL).strip())


def _strip_end(text: str, token: re.Pattern) -> str:
    """The text without white space and tokens at its end."""
    text = text.rstrip()
    while found := token.search(text, max(0, len(text) - 30)):
        text = text[: found.start()].rstrip()
    return text


def _check(is_one: bool, what: str) -> None:
    if not is_one:
        raise SeveralTurns(what)


def _from_tokens(text: str) -> str | None:
    """The user's turn between a template's special tokens, or None where there are none."""
    marks = list(_ROLE.finditer(text))
    start = _BEGIN.match(text)
    if not marks:
        return _strip_end(text[start.end() :], _END) if start else None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    users, before = [], text[: marks[0].start()]
    for mark, end in zip(marks, ends, strict=True):
        role = next(name for name in mark.groups() if name).lower()
        turn = _strip_end(text[mark.end() : end], _END)
        if role in ("user", "human"):
            users.append(turn)
        elif role in ("assistant", "model", "gpt"):
            _check(is_prefill(turn), _ANSWERED)
    if not users:  # the tokens of the user's turn were cut off
        users = [_strip_end(_BEGIN.sub("", before), _END)]
    _check(len(users) == 1, f"{len(users)} user turns")
    return users[0]


def _from_inst(text: str) -> str | None:
    turns = _INST.findall(text)
    if not turns:
        return None
    _check(len(turns) == 1, f"{len(turns)} user turns")
    rest = text.rpartition("[/INST]")[2] if "[/INST]" in text else ""
    _check(is_prefill(rest), _ANSWERED)
    return _INST_SYSTEM.sub("", turns[0])


def _from_dialogue(text: str) -> str | None:
    if not _DIALOGUE.match(text):
        return None
    users, assistants = list(_USER.finditer(text)), list(_ASSISTANT.finditer(text))
    if not users:
        return None
    _check(len(users) == 1 and len(assistants) < 2, f"{len(users)} user turns")
    turn = text[users[0].end() :]
    if assistants:
        turn = text[users[0].end() : assistants[0].start()]
        _check(is_prefill(text[assistants[0].end() :]), _ANSWERED)
    follows = _PROBLEM_FOLLOWS.search(turn)
    return turn[follows.end() :] if follows else turn


def _from_alpaca(text: str) -> str | None:
    found = _ALPACA.match(text)
    if not found:
        return None
    _check(is_prefill(found[2]), _ANSWERED)
    return found[1]


def _from_labels(text: str) -> str | None:
    """What follows `Question:`, up to an `Answer:` that ends the text."""
    for asks, asks_again, answers in _LABELS:
        if opening := asks.match(text):
            turn = text[opening.end() :]
            closing = answers.search(turn)
            is_closed = bool(closing) and is_prefill(closing[1])
            again = asks_again.search(turn)
            _check(not (again and closing and closing.start() < again.start()), "several questions")
            return turn[: closing.start()] if is_closed else turn
    return None
