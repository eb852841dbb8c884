r"""Prompts back to bare questions: chat-template tokens and instructions on how to answer go.

One prompt template is applied in one place (`data_prep.prompts`), so whatever a data set has put
around its questions must go first; `data_prep.sources.instructions` does the sentences.
"""

import re
from typing import Any

from data_prep.reading.json_rows import decode_at, is_conversation
from data_prep.sources.instructions import strip_instructions

_ROLE_NAMES = "system|developer|user|human|prompter|assistant|chatbot|bot|model|gpt"
# A special token, whose bars are fullwidth in R1's; no norm and no bra-ket has so long a name.
_TOKEN = r"<[|\uff5c]\s?[A-Za-z]{2}[\w\u2581-]{1,38}\s?[|\uff5c]>"
# A role within a token, between two, or behind one that begins a turn.
_ROLE = re.compile(
    rf"[<\[][|\uff5c]\s*(?!\w*end)(?:\w{{1,9}}_)?({_ROLE_NAMES})(?:_\w{{1,9}})?"
    r"\s*[|\uff5c][>\]]"
    rf"(?:(?:{_ROLE_NAMES}){_TOKEN})?"
    rf"|<\|start\|>\s*({_ROLE_NAMES})\b(?:<\|channel\|>\w+)?(?:<\|message\|>)?"
    rf"|{_TOKEN}\s*({_ROLE_NAMES})\s*{_TOKEN}"
    rf"|(?:<\|im_start\|>|<start_of_turn>|<extra_id_\d+>)\s*({_ROLE_NAMES})\b",
    re.IGNORECASE,
)
_END = re.compile(rf"(?:{_TOKEN}|\[\|endofturn\|\]|<end_of_turn>|</s>|<eos>|<EOS_TOKEN>)\Z")
# Qwen's switch is a word of its own at either end of what the user says.
_PREFILL = re.compile(r"(?:</?think>|<answer>|(?<!\S)/(?:no_?)?think)\Z", re.IGNORECASE)
_SWITCH = re.compile(r"\A\s*/(?:no_?)?think(?!\S)", re.IGNORECASE)
_BEGIN = re.compile(
    r"\A\s*(?:(?:<s>|<bos>|<BOS[_ ]TOKEN>|\[gMASK\]|<sop>"
    r"|<[|\uff5c](?:begin|start|bos)[\w\u2581]*[|\uff5c]>)\s*)+",
    re.IGNORECASE,
)
# What no question says of its own: left over, it belongs to a template that is not known here.
_FOREIGN = re.compile(
    rf"{_TOKEN}|<(?:start|end)_of_turn>|<(?:extra_id|reserved)_\d+>|<seed:\w+>"
    r"|\[/?INST\]|<</?SYS>>|\[/?SYSTEM_PROMPT\]"
    rf"|<[BE]OS[_ ]TOKEN>|\[\|(?:{_ROLE_NAMES}|endofturn)\|\]|(?<!\S)/no_?think(?!\S)"
    r"|\A\s*\[\s*\{\s*['\"](?:role|from|content|value)['\"]\s*:"
    r"|(?:\A|(?<=\s))(?:assistant|### ?(?:response|assistant)):\Z",
    re.IGNORECASE,
)
_INST = re.compile(r"\[INST\](.*?)(?:\[/INST\]|\Z)", re.DOTALL)
_INST_SYSTEM = re.compile(r"\A\s*<<SYS>>.*?<</SYS>>", re.DOTALL)
# The prompt of R1-Zero and its kin: prose about two speakers, then what the user says.
_DIALOGUE = re.compile(
    r"\A\s*A (?:conversation|chat|dialogue) between (?:an? )?(?:\w+ )?(?:user|human) and "
    r"(?:an? )?(?:\w+ ){0,2}(?:assistant|AI|chatbot)\b",
    re.I,
)
_USER = re.compile(r"(?:^|(?<=[\s.>]))(?:### ?)?(?:User|Human|USER|HUMAN):\s*")
_ASSISTANT = re.compile(r"(?:^|(?<=[\s.>]))(?:### ?)?(?:Assistant|ASSISTANT):\s*")
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
        re.compile(rf"(?:\A|\n|\s(?=ASSISTANT:))[ \t]*(?i:{answers})\s*:(.*)\Z", re.DOTALL),
    )
    for asks, answers in (
        ("(?:Question|Problem)", "(?:Answer|Solution|Response)"),
        ("Q", "A"),
        ("(?:Human|User)", "(?:Assistant|AI|Bot)"),
    )
)
_LONGEST_TOKEN = 46
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
    text = _BEGIN.sub("", text)
    for strip in (_from_inst, _from_tokens, _from_dialogue, _from_alpaca, _from_labels):
        if (turn := strip(text)) is not None:
            text = turn
            break
    text = _SWITCH.sub("", _strip_end(_strip_end(text, _END), _PREFILL))
    return strip_instructions(text.strip())


def find_foreign_token(question: str) -> str | None:
    """A token of a chat template that `bare_question` left in a question, or None."""
    found = _FOREIGN.search(question)
    return found[0].strip() if found else None


def chat_turns(value: Any) -> list | None:
    """The turns of a chat: a list as it is, or what the text of one holds; None for other text.

    A CSV file can hold a chat as JSON text alone.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    text = value.strip()
    try:
        turns, end = decode_at(text, 0)
    except ValueError:
        return None
    return turns if end == len(text) and is_conversation(turns) else None


def is_prefill(text: str) -> bool:
    """Whether a turn of the assistant is only the beginning of its answer, such as `<think>`."""
    return not strip_instructions(_strip_end(_strip_end(text, _END), _PREFILL).strip())


def _strip_end(text: str, token: re.Pattern) -> str:
    """The text without white space and tokens at its end."""
    text = text.rstrip()
    while found := token.search(text, max(0, len(text) - _LONGEST_TOKEN)):
        text = text[: found.start()].rstrip()
    return text


def _check(is_one: bool, what: str) -> None:
    if not is_one:
        raise SeveralTurns(what)


def _from_tokens(text: str) -> str | None:
    """The user's turn between a template's special tokens, or None where there are none."""
    marks = list(_ROLE.finditer(text))
    if not marks:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    users, before = [], text[: marks[0].start()]
    for mark, end in zip(marks, ends, strict=True):
        role = next(name for name in mark.groups() if name).lower()
        turn = _strip_end(text[mark.end() : end], _END)
        if role in ("user", "human", "prompter"):
            users.append(turn)
        elif role not in ("system", "developer"):
            _check(is_prefill(turn), _ANSWERED)
    if not users:  # the tokens of the user's turn were cut off
        users = [_strip_end(before, _END)]
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
