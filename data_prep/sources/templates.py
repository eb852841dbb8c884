r"""Prompts back to bare questions: chat-template tokens and instructions on how to answer go.

`pipeline.prompts` applies one prompt template, so the text that a data set has put around its
questions is removed first: the roles and tokens of chat templates, and at the ends of the question
known instructions. Thus "Give the answer as $m+n$." and "Put m+n in \boxed{}." stay.
"""

import json
import re
from typing import Any

from pipeline.rows import is_conversation

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
    r"|(?:\A|(?<=\s))(?:assistant|### ?(?:response|assistant)):\Z"
    r"|(?<=\n)(?:### ?)?assistant:(?=\s)",
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
_LONGEST_TOKEN = 46
_ANSWERED = "text in the assistant's turn"


# `\boxed{}`, `\boxed{...}`, `\boxed{\text{answer}}`, `\boxed{<final_answer>}`, in dollars or not.
_BLANK = r"[\s.\u2026_*?\[\]<>]*+"
_BOX = (
    rf"\$?(?:\\[(\[])?\\boxed\{{(?:\\text\{{)?{_BLANK}(?:\\[lc]?dots)?"
    rf"(?i:(?:your|the|final|answer|here)[\s_]*+)*+{_BLANK}\}}{{1,2}}(?:\\[)\]])?\$?"
)
_PROSE = r"[^$?!\\\d\n.\u3002]"  # no formula, and within one sentence
_END_OF_SENTENCE = rf"{_PROSE}{{0,60}}(?:\.|(?=\n)|\Z)"
_STEPS = (
    r"(?:(?:Please|Let['\u2019]?s|Let us|Let me)\s+(?:think|reason|solve)|Think|Reason)\b"
    rf"{_PROSE}{{0,40}}\bstep[ -]by[ -]step\b{_PROSE}{{0,150}}"
)
_ASKS = (
    r"(?:Please|Put|Return|Write|Present|Give|Provide|Output|Enclose|Make sure|(?:And )?[Yy]our)\b"
    rf"{_PROSE}{{0,200}}"
)
# What data sets put around their questions: six texts, and two kinds of sentences, "Let's think
# step by step …" and "… put your final answer within \boxed{}.".
_KNOWN = (
    r"Solve the following math problem(?: step by step| efficiently and clearly)?\.",
    r"The last line of your response should be of the (?:form|following format:) .{1,90}"
    r"\(without quotes\) where [^.\n]{1,80}\.",
    r'Remember to put your answer on its own line after "Answer:"\.',
    r"You will be given a problem\.",
    "\u8bf7\u9010\u6b65\u63a8\u7406\uff0c\u5e76\u5c06\u6700\u7ec8\u7b54\u6848\u653e\u5728"
    rf"{_BOX}\u4e2d\u3002",
    "\u8ba9\u6211\u4eec\u4e00\u6b65\u4e00\u6b65\u5730\u601d\u8003\u3002\u8bf7\u4ee5\u201cAnswer: "
    rf"{_BOX}\u201d\u7684\u683c\u5f0f[^$\n]{{1,90}}\u6570\u503c\u3002",
    rf"{_STEPS}(?:{_BOX})?{_END_OF_SENTENCE}",
    rf"{_ASKS}{_BOX}{_END_OF_SENTENCE}",
)
_INSTRUCTION = rf"(?:{'|'.join(_KNOWN)})"
_FIRST = re.compile(rf"\A\s*{_INSTRUCTION}\s*")
_LAST = re.compile(rf"(?:\A|(?<!\w))\s*+{_INSTRUCTION}\s*\Z")
# A quick no for nearly all questions.
_HINT = re.compile(
    r"step[ -]by[ -]step|\\boxed|math problem|last line|own line|given a problem", re.IGNORECASE
)
_LONGEST = 1000  # characters looked at from either end


class SeveralTurns(ValueError):
    """A prompt with several user turns, or with a turn of the assistant that says something."""


def bare_question(text: str) -> str:
    """The question without template tokens and instructions on how to answer, or `SeveralTurns`."""
    text = _BEGIN.sub("", text)
    for strip in (_from_inst, _from_tokens, _from_dialogue):
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
    """The turns of a chat: a list, or one as JSON text (of a CSV file); None for other text."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str) or not value.lstrip().startswith("["):
        return None
    try:
        turns = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return turns if is_conversation(turns) else None


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
    users = []
    for mark, end in zip(marks, ends, strict=True):
        role = next(name for name in mark.groups() if name).lower()
        turn = _strip_end(text[mark.end() : end], _END)
        if role in ("user", "human", "prompter"):
            users.append(turn)
        elif role not in ("system", "developer"):
            _check(is_prefill(turn), _ANSWERED)
    # Without any, the tokens of the user's turn were cut off.
    users = users or [_strip_end(text[: marks[0].start()], _END)]
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
    if follows:
        return turn[follows.end() :]
    return turn


def strip_instructions(text: str) -> str:
    """The text without the known instructions on how to answer at its beginning and its end."""
    if not _HINT.search(text):
        return text
    while found := _LAST.search(text, max(0, len(text) - _LONGEST)):
        text = text[: found.start()].rstrip()
    while found := _FIRST.match(text):
        text = text[found.end() :]
    return text.strip()


def asks_for_box(question: str) -> bool:
    """Whether a question still says to put something into an empty box."""
    return "\\boxed" in question and bool(re.search(_BOX, question))
