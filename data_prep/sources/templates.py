r"""Prompts back to bare questions: chat-template tokens and instructions on how to answer go.

`pipeline.prompts` applies one prompt template, so the text that a data set has put around its
questions is removed first. There is no list of known prompts. A sentence at an end of the text is
removed if all its words are about the way to answer. Besides, it, or a sentence next to it, must
hold something that no question says: an empty box, "step by step", a tag. Thus "Give the answer as
$m+n$." and "Put m+n in \boxed{}." stay.
"""

import json
import re
from collections.abc import Iterator
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


# `\boxed{}`, `\boxed{...}`, `\boxed{Your answer}`, `\boxed{<final_answer>}`, also between dollars.
# Possessive, since a box that is not closed would be tried in every way to split its blanks.
_BLANK = r"[\s.\u2026_*?\[\]<>$`]*+"
_BOX = re.compile(
    rf"[$`]*+(?:\\\(|\\\[)?+\\*+(?:boxed|fbox)\s*+(?:\\?+\{{\s*+(?:\\text\s*+\{{)?+{_BLANK}"
    rf"(?:\\[lc]?dots)?+(?:(?:your|the|final|numeric(?:al)?|answer|result|solution|here|value)"
    rf"[\s_]*+)*+{_BLANK}\}}?\s*+\\?+\}})?+(?:\\\)|\\\])?+[$`]*+",
    re.IGNORECASE,
)
_ANSWER_TAG = re.compile(r"</?(?:think|thinking|answer|reasoning|solution|final_answer)>|#{4}")
_STEPWISE = re.compile(
    r"\b(?:step[\s-]by[\s-]steps?|(?:in|within|inside) (?:a|the) box|boxed|latex format"
    r"|final answer|(?:last|own|new|separate) line|without quotes|chain of thought)\b"
    r"|\u9010\u6b65|\u4e00\u6b65\u4e00?\u6b65|\u6700\u7ec8\u7b54\u6848",
    re.IGNORECASE,
)
_CORE = re.compile(
    rf"\\boxed\b|{_ANSWER_TAG.pattern}|{_STEPWISE.pattern}", re.IGNORECASE
)  # a quick no for nearly all questions
# "…, for example <answer> (1 + 2) / 3 </answer>": the form, not an answer.
_EXAMPLE = re.compile(
    r"(?:for example|for instance|e\.g\.|i\.e\.|such as|like)[\s,:]*"
    r"<(\w+)>[^<>]{0,100}</\1>",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\$?\{?(?:Your\s?|Final\s?)?Answer\}?\$?(?![A-Za-z])")
_WORD_LIST = """
a about above accordingly accurate accurately after afterwards again all also always an and
answer answering answers any approach are as asked assistant at automatically avoid be been
before begin being below between both box boxed brackets brief briefly but by can careful
carefully check clear clearly complete completely concise concisely conclude conclusion
conclusions content correct correctly could curly detail detailed details directly do don done
dont double e.g each easy efficiently either enclose enclosed encloses end ending ensure every
exam expert explain explained explaining explanation explanations expression extracted fenced
final finally finish finishing first follow following for form format formatted from full fully
further give given go good has have having help helpful here highlight hope i i.e ie if
immediately important in include including indicate inside instruction instructions integrate
into is it its itself just justification language last latex let lets like line lines logic
logically long made make making markdown math mathematical mathematician mathematics may me
message might mind must natural need nothing now number of off on once one only or other
otherwise out output over own paragraph place placed plain please present presented problem
problems proceed process produce programs proper properly provide provided provides providing
put question questions quotation quotes rationale reason reasoning remember reply report respond
response result return review rigorous rigorously sentence separate should show showing shown
simply single so solution solutions solve solved solver solves solving start state step steps
stepwise strictly string such summarize summary sure surround surrounded tag tags task tell
tests text than that the them then there therefore these they thing think thinking this thorough
thoroughly those thought thoughts through to together train try turn under understand
understandable up us use user using valid verify very via way we well when where whether while
will with within without word words work working would wrap wrapped write writing you your
"""
_WORDS = frozenset(_WORD_LIST.split())
_CHINESE = re.compile(
    r"[的请你让我们一步地思考推理逐并将把最终后答案放在到中里内以格式输出写给于用框起来"
    r"结果回过程解题下面问如果是选择按顺序正确项不带任何标点或空格对其他类型只数值详细"
    r"仔见个此该之前先再行]"
)
_BREAK = re.compile(r"(?<=[.!?:])[)\"'\u201d]*\s+|(?<=[\u3002\uff01\uff1f\uff1a])\s*|\s*\n\s*")
_IMPERATIVES = (
    "Please|Let|Put|Return|Think|Solve|Present|Place|Provide|Give|Write|Show|Make|Remember|Answer"
    "|Output|Reason|Enclose|Box|Respond|Use|State|Report|Explain|Do|Ensure|Be|Work|Keep|Follow"
)
# Where an instruction may begin behind a question without a full stop.
_OPENING = re.compile(
    rf"(?:^|(?<=\s)|(?<=[.?!)$\]}}\u3002\uff1f]))(?=(?:{_IMPERATIVES})\b|\u8bf7|\u8ba9)"
    r"|(?:^|(?<=[.?!)$\]}])|(?<=[.?!)$\]}]\s))(?=(?:Your|The|You|First|Finally|And)\b)"
)
# What is an instruction only next to one that is sure: "Please explain your reasoning."
_ASIDE = re.compile(
    rf"\W*(?:{_IMPERATIVES}|You|Your|First|Finally|\u8bf7)\b.*(?:answer|solution|reasoning|response"
    r"|problem|question|result|steps|work|format|thought|assistant|\u7b54|\u9898)",
    re.IGNORECASE | re.DOTALL,
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
    """The text without sentences at its beginning and its end that only say how to answer."""
    if not _CORE.search(text):
        return text
    text = text[_leading(text) :]
    return text[: _trailing(text)].strip()


def _is_about_answering(sentence: str) -> bool:
    """Whether all words of a sentence are about the way to answer."""
    rest = _EXAMPLE.sub(" ", _BOX.sub(" ", sentence))
    rest = _PLACEHOLDER.sub(" ", _ANSWER_TAG.sub(" ", rest))
    if "?" in rest or "\uff1f" in rest:
        return False  # "Is the following correct?"
    rest = re.sub(r"(?<=\w)-(?=\w)", " ", rest)
    rest = re.sub(r"['\u2019]", "", rest)
    rest = re.sub(
        r"[\s.,;:!?\"\u201c\u201d`()*\u3002\uff0c\uff1a\uff01\u3001\uff08\uff09\[\]-]", " ", rest
    )
    return all(word.lower() in _WORDS or not _CHINESE.sub("", word) for word in rest.split())


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of every sentence or line, the white space between them left out."""
    start = 0
    for gap in _BREAK.finditer(text):
        if text[start : gap.start()].strip():
            yield start, gap.start()
        start = gap.end()
    if text[start:].strip():
        yield start, len(text)


def _leading(text: str) -> int:
    """Where the question begins behind the instructions."""
    end, has_core, was_instruction = 0, False, False
    for start, stop in _sentences(text[:_LONGEST]):
        if was_instruction:
            end = start
        sentence = text[start:stop]
        if not _is_about_answering(sentence):
            return end
        was_instruction = bool(_CORE.search(sentence) or (has_core and _ASIDE.match(sentence)))
        has_core = has_core or was_instruction
    return len(text) if was_instruction else end


def _trailing(text: str) -> int:
    """Where the question ends before the instructions."""
    offset = max(0, len(text) - _LONGEST)
    end, has_core = len(text), False
    for start, stop in reversed(list(_sentences(text[offset:]))):
        sentence = text[offset + start : offset + stop]
        at = _opening(sentence)
        if at is None:
            break
        if _CORE.search(sentence[at:]) or (has_core and _ASIDE.match(sentence[at:])):
            end, has_core = offset + start + at, True
        if at:
            break
    return end


def _opening(sentence: str) -> int | None:
    """Where in a sentence the instruction begins, or None where its end is none."""
    is_all = _is_about_answering(sentence)
    for found in _OPENING.finditer(sentence):
        before, rest = sentence[: found.start()], sentence[found.start() :]
        if is_all or _is_about_answering(rest):
            # "Then Let's think": what precedes it belongs to the question.
            return 0 if is_all and not re.search(r"\w", before) else found.start()
    return 0 if is_all else None
