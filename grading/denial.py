"""Denial: whether the words around an answer say that it is none, or make something else of it."""

import re

_NO = r"(?:n't|(?<!than )not|\bnever)"  # more than not
_FALSE = r"(?:wrong|incorrect|false|untrue|mistaken|impossible|a mistake|a lie|an error)"
_WRONG = rf"(?:{_FALSE}|not (?:correct|right|true))"
_THINK = r"(?:say|think|claim|conclude|assume|believe|suppose|guess|agree)s?"  # it is 5
_SAY = rf"(?:{_THINK}|(?:answer|write|give|accept)s?)"
_IS = r"(?:is|are|was|would be|seems|must be|has to be)"
_ANSWER = r"(?:answer|result|value|number|solution|total|one)"
_ADVERB = r"(?:possibly|really|actually|likely|simply|be|been|is|equals?|to|the answer)"
# The rest of the clause up to the answer, unless something is concluded from it.
_REST = r"(?:(?!\b(?:so(?! \w+ as)|thus|hence|therefore|but)\b)[^.:;,!?\n])*$"
# Who denies an answer by declining to say it: the solver, or an order such as "do not say".
_SOLVER = r"\b(?:i|we|you|one|nobody|no one)(?:'\w+)?(?: (?!(?:who|that|s?he|they)\b)\w+?){0,2} ?"
_ORDER = r"(?:^|[.:;,!?\n]) ?(?:(?:so|and|but|please|just) )*(?:do ?)?"
_STATED = rf"(?:it|this|there|(?:the|my|our|their) (?:\w+ )?{_ANSWER})"
_OBJECT = rf"(?:(?:with|to|as|for|of|in|an?|the|any|value|{_ANSWER})\b ?)*(?:[a-z]? ?= ?)?$"
_BEFORE = re.compile(
    "|".join((
        rf"{_NO} (?:{_ADVERB}\b ?)*$",
        r"\b(?:no es|pas|nicht) ?$",
        "(?:не|不是|并非|不等于|\\\\neq?|\\\\not ?=|\u2260) ?$",
        r"(?<!-)\b(?:twice|double|triple|half(?: of)?|minus|negative|except|square of) ?$",
        r"\b(?:two|three|four|five|ten) times ?$",
        r"\b(?:square root|cube root|third|quarter|fifth|tenth|opposite|inverse|reciprocal) of ?$",
        r"\b(?:different from|anything but|rather than|instead of|(?<!none )other than) ?$",
        r"\bneither(?: \S+ nor)? ?$",
        rf"(?:\b{_FALSE}|{_NO} (?:true|correct|right|the case)) (?:that|to {_SAY})\b{_REST}",
        rf"(?:(?:{_SOLVER}|{_ORDER}){_NO}|\b(?:nobody|no one)(?: should)?) {_SAY}\b{_REST}",
        # Others may decline to say something else: "those who do not agree with it are 5".
        rf"(?:{_NO}|\bno way) (?:that|{_SAY} that|{_THINK} {_STATED})\b{_REST}",
        rf"{_NO} {_SAY} {_OBJECT}",
        rf"\bby no means\b{_REST}",
        rf"\b(?:wrong|incorrect|false) (?:answer|result|value)\b(?:[ :=]|{_IS}\b|of\b)*$",
    )),
    re.IGNORECASE,
)  # fmt: skip
# "The sum of 5 and 3", but not "a sum of 5".
_OPERATION = re.compile(r"\b(?:sum|product|difference) of ?$", re.IGNORECASE)
_OPERAND = re.compile(
    r"(?: [a-z]+)? ?(?:,|,? and|,? with) ?(?:-?\d|\\|[b-z]\b|its\b|itself\b|one\b|two\b|three\b)"
)
_AFTER = re.compile(
    r"[ .,;:?\u2014-]*(?:(?:but|and|however|although|though|yet|no|wait|oops|sorry)\b[ ,]*)*"
    rf"(?:(?:this|that|it|which|the) )?(?:(?:box|{_ANSWER}) )?"
    rf"(?:{_IS} (?:(?:\w+ly|just|also|however|of course|the|an?) )*{_WRONG}\b"
    r"|(?:is|are|was) not(?: so| the case)? ?(?:[.,;!]|$)"
    rf"|(?:(?:is|are|was) not|isn't|wasn't|cannot be|can't be) (?:(?:the|a|what|final) )*"
    rf"(?:correct|right|true|it|{_ANSWER})\b)(?! (?:of|if|unless|for)\b)"
    r"| *\? no\b| ?(?:squared|cubed)\b| ?(?:plus|minus|times) (?:\d|two|three|four|ten)\b",
    re.IGNORECASE,
)
# One of these is in every denial; looking for them first saves most of the time.
_HINT_BEFORE = re.compile(
    r"n't|no[t ,]|never|nobody|wrong|incorrect|false|untrue|mistake|impossible|a lie|an error|twice"
    r"|double|triple|half|square root|cube root|third of|quarter|fifth|tenth|opposite|inverse of"
    r"|reciprocal|times[\s$*({]*$|sum of|product of|difference of|minus|negative|except|square of"
    r"|different from|anything but|rather than|instead of|other than|neither|pas|nicht|не|不|并非"
    r"|\\ne|\u2260"
)
_HINT_AFTER = re.compile(
    r"n't|not|wrong|incorrect|false|untrue|mistake|impossible|a lie|an error|\? ?no|squared|cubed"
    r"|plus|minus|times"
)
_MARKUP = re.compile(
    r"(?:[\s*_$`\"\u201c\u201d{}()\[\]~]"
    r"|\\(?:[()\[\],;: !]|(?:text(?:bf|it)?|mathrm|left|right)\b))+"
)


def is_denied(before: str, after: str) -> bool:
    """Whether an answer between two pieces of text is denied: `not 5`, `5 is wrong`."""
    before, after = (text.replace("\u2019", "'") for text in (before, after))
    may_be = _HINT_BEFORE.search(before.lower()), _HINT_AFTER.search(after.lower())
    if not any(may_be):
        return False
    before, after = (_MARKUP.sub(" ", text) for text in (before, after))
    if _OPERATION.search(before) and _OPERAND.match(after):
        return True
    return bool((may_be[0] and _BEFORE.search(before)) or (may_be[1] and _AFTER.match(after)))
