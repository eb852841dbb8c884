r"""A worked solution without the markup that its data set puts around a thought.

SFT writes every thought between `<think>` and `</think>`. Sets have it between other signs:
`<|begin_of_thought|>` (Sky-T1, OpenThoughts), `<thinking>`, `<reasoning>`, `[THINK]` (Magistral),
`◁think▷` (Kimi), `<seed:think>`, or in gpt-oss's channel `analysis`. Exactly one thought with an
answer behind it is taken. All else would teach signs that no template knows, or a thought that
never ends: it is left out, by the reasons of `read_thought`.
"""

import re

from data_prep.sources.base import Drop
from data_prep.sources.templates import find_foreign_token

_NAME = (
    r"(?:\w*[_:])?(?:think|thinking|thoughts?|reason|reasoning|analysis|reflection|scratchpad"
    r"|rationale|monologue|cot)(?:_process)?"
)
_BAR = "[|\uff5c]"  # fullwidth in R1's tokens
_TAG = re.compile(
    rf"<(?P<slash>/?)(?P<angle>{_NAME})>"
    rf"|<{_BAR}(?P<side>/|(?:begin|start|end)_(?:of_)?)?(?P<bar>{_NAME}){_BAR}>"
    r"|(?-i:\[(?P<end>/?)(?P<square>THINK)\])"
    r"|\u25c1(?P<last>/?)(?P<triangle>think)\u25b7"
    r"|(?P<channel><\|channel\|>analysis<\|message\|>)"
    r"|(?P<final>(?:<\|end\|>\s*(?:<\|start\|>assistant\s*)?)?<\|channel\|>final<\|message\|>)",
    re.IGNORECASE,
)
_ENDS = ("slash", "side", "end", "last")  # groups of the sign that makes a tag a closing one
_KINDS = ("angle", "bar", "square", "triangle")
# Around a reply and its answer: `<|im_start|>assistant`, `<|begin_of_solution|>`, `<answer>`.
_AROUND = re.compile(rf"<{_BAR}[^|\uff5c<>]{{1,40}}{_BAR}>(?:assistant\b)?|</?\w+>|</?s>", re.I)


def read_thought(text: str) -> str:
    """The thought in a reply; a text without any markup of thoughts is all of it one.

    A reply may begin within the thought, where a template has opened it.

    Raises:
        Drop: several_thoughts, unclosed_thought, mixed_markup, text_before_thought, empty_thought,
            no_answer_after_thought, or unknown_markup: another set's token is left.
    """
    tags = [(*_read_tag(found), found) for found in _TAG.finditer(text)]
    opens = [(kind, found) for is_open, kind, found in tags if is_open]
    closes = [(kind, found) for is_open, kind, found in tags if not is_open]
    thought = text
    if tags:
        if len(opens) > 1 or len(closes) > 1:
            raise Drop("several_thoughts", " ".join(found[0] for *_, found in tags)[:80])
        if not closes:
            raise Drop("unclosed_thought", opens[0][1][0])
        start, stop = (opens[0][1].end() if opens else 0), closes[0][1].start()
        if stop < start:
            raise Drop("unclosed_thought", "it is closed before it is opened")
        if opens and opens[0][0] != closes[0][0]:
            raise Drop("mixed_markup", f"{opens[0][1][0]} {closes[0][1][0]}".strip()[:80])
        before = text[: opens[0][1].start()] if opens else ""
        if before := _AROUND.sub("", before).strip():
            raise Drop("text_before_thought", before[:80])
        if not _AROUND.sub("", text[closes[0][1].end() :]).strip():
            raise Drop("no_answer_after_thought")
        thought = text[start:stop]
        if not thought.strip():
            raise Drop("empty_thought")
    if token := find_foreign_token(thought):
        raise Drop("unknown_markup", token[:80])
    return thought.strip()


def _read_tag(found: re.Match) -> tuple[bool, str]:
    """Whether a tag opens a thought, and its kind, which that of the closing tag must be."""
    if found["channel"] or found["final"]:
        return bool(found["channel"]), "channel"
    sign = next(filter(None, (found[name] for name in _ENDS)), "")
    kind = next(name for name in _KINDS if found[name])
    is_open = not sign.lower().startswith(("/", "end"))
    return is_open, f"{kind} {found[kind].lower()}"
