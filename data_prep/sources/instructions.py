r"""Instructions on how to answer, taken off the beginning and the end of a question.

No list of known prompts: a sentence goes if every word of it is about the way to answer, and if it,
or one beside it, holds what no question says of its own: an empty box, "step by step", a tag. Thus
"Give the answer as $m+n$." and "Put m+n in \boxed{}." stay, and so does all that is not at an end.
"""

import re
from collections.abc import Iterator

# `\boxed{}`, `\boxed{...}`, `\boxed{Your answer}`, `\boxed{<final_answer>}`, also between dollars.
# Possessive, since a box that is not closed would be tried in every way to split its blanks.
_BLANK = r"[\s.\u2026_*?\[\]<>$`]*+"
_BOX = re.compile(
    rf"[$`]*+(?:\\\(|\\\[)?+\\*+(?:boxed|fbox)\s*+(?:\\?+\{{\s*+(?:\\text\s*+\{{)?+{_BLANK}"
    rf"(?:\\[lc]?dots)?+(?:(?:your|the|final|numeric(?:al)?|answer|result|solution|here|value)"
    rf"[\s_]*+)*+{_BLANK}\}}?\s*+\\?+\}})?+(?:\\\)|\\\])?+[$`]*+",
    re.IGNORECASE,
)
_TAG = re.compile(r"</?(?:think|thinking|answer|reasoning|solution|final_answer)>|#{4}")
_STEPWISE = re.compile(
    r"\b(?:step[\s-]by[\s-]steps?|(?:in|within|inside) (?:a|the) box|boxed|latex format"
    r"|final answer|(?:last|own|new|separate) line|without quotes|chain of thought)\b"
    r"|\u9010\u6b65|\u4e00\u6b65\u4e00?\u6b65|\u6700\u7ec8\u7b54\u6848",
    re.IGNORECASE,
)
_CORE = re.compile(
    rf"\\boxed\b|{_TAG.pattern}|{_STEPWISE.pattern}", re.IGNORECASE
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
    r"[\u7684\u8bf7\u4f60\u8ba9\u6211\u4eec\u4e00\u6b65\u5730\u601d\u8003\u63a8\u7406\u9010\u5e76"
    r"\u5c06\u628a\u6700\u7ec8\u540e\u7b54\u6848\u653e\u5728\u5230\u4e2d\u91cc\u5185\u4ee5\u683c"
    r"\u5f0f\u8f93\u51fa\u5199\u7ed9\u4e8e\u7528\u6846\u8d77\u6765\u7ed3\u679c\u56de\u8fc7\u7a0b"
    r"\u89e3\u9898\u4e0b\u9762\u95ee\u5982\u679c\u662f\u9009\u62e9\u6309\u987a\u5e8f\u6b63\u786e"
    r"\u9879\u4e0d\u5e26\u4efb\u4f55\u6807\u70b9\u6216\u7a7a\u683c\u5bf9\u5176\u4ed6\u7c7b\u578b"
    r"\u53ea\u6570\u503c\u8be6\u7ec6\u4ed4\u89c1\u4e2a\u6b64\u8be5\u4e4b\u524d\u5148\u518d\u884c]"
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
# What is an instruction only beside one that is sure: "Please explain your reasoning."
_ASIDE = re.compile(
    rf"\W*(?:{_IMPERATIVES}|You|Your|First|Finally|\u8bf7)\b.*(?:answer|solution|reasoning|response"
    r"|problem|question|result|steps|work|format|thought|assistant|\u7b54|\u9898)",
    re.IGNORECASE | re.DOTALL,
)
_LONGEST = 1000  # characters looked at from either end


def strip_instructions(text: str) -> str:
    """The text without sentences at its beginning and its end that only say how to answer."""
    if not _CORE.search(text):
        return text
    text = text[_leading(text) :]
    return text[: _trailing(text)].strip()


def _is_about_answering(sentence: str) -> bool:
    """Whether all words of a sentence are about the way to answer."""
    rest = _EXAMPLE.sub(" ", _BOX.sub(" ", sentence))
    rest = _PLACEHOLDER.sub(" ", _TAG.sub(" ", rest))
    if "?" in rest or "\uff1f" in rest:
        return False  # "Is the following correct?"
    rest = re.sub(r"['\u2019]|(?<=\w)-(?=\w)", lambda sign: " " * (sign[0] == "-"), rest)
    rest = re.sub(
        r"[\s.,;:!?\"\u201c\u201d`()*\u3002\uff0c\uff1a\uff01\u3001\uff08\uff09\[\]-]", " ", rest
    )
    return all(word.lower() in _WORDS or not _CHINESE.sub("", word) for word in rest.split())


def _has_core(sentence: str) -> bool:
    return bool(_CORE.search(sentence))


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
        end = start if was_instruction else end
        sentence = text[start:stop]
        if not _is_about_answering(sentence):
            return end
        was_instruction = _has_core(sentence) or (has_core and bool(_ASIDE.match(sentence)))
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
        if _has_core(sentence[at:]) or (has_core and _ASIDE.match(sentence[at:])):
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
            # "Then Let's think": what stands before belongs to the question.
            return 0 if is_all and not re.search(r"\w", before) else found.start()
    return 0 if is_all else None
