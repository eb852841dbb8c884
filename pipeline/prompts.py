"""Prompts and completions: prompts by name, tags, and the one place a chat template is applied.

`build_prompt` and `build_completion` make the texts of the data files, which no tokenizer decides.
`render_prompt` and `render_completion` turn them into the exact text that is tokenized. SFT,
difficulty and evaluation call them. GRPO passes the same messages to TRL, which applies the same
template.
"""

from typing import Annotated, Any, NamedTuple

from pipeline.errors import UserError
from pipeline.values import OneOf

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"
HASHES = "####"

# Where an answer is looked for: in `\boxed{}`, between `<answer>` and `</answer>`, behind `####`.
# A thought must come before it, but in the last two a completion may do without one.
ANSWER_FORMS = ("box", "tags", "bare_box", "hashes")
BARE_FORMS = ("bare_box", "hashes")
# A row's prompt: messages to which a chat template is applied, or raw text, which goes in as it is.
Prompted = list[dict[str, str]] | str


class Prompt(NamedTuple):
    """A user and a system message; one of them has `{question}`, an empty one is not sent."""

    user: str = "{question}"
    system: str = ""
    answer_form: str = "box"


# Chosen with the key `prompt` of data.yaml and eval.yaml. The first four are ours. Those that bear
# a run's name are its own to the byte, missing spaces and all. Sources, as in docs/published.yaml:
# Perplexity's write-up; for `boba` RLinf's and the rows of AReaL-boba-Data; for `rlite` grpo.py of
# RLite-Recipe at c746fce. Boba's rows hold R1's whole template. Here the model's own is rendered,
# which adds BOS, and a line break or space may differ.
PROMPTS = {
    "none": Prompt(),
    "think": Prompt(
        system="Think about the problem step by step between <think> and </think>, "
        "then give the final answer in \\boxed{}."
    ),
    "boxed": Prompt(
        system="You will be given a problem. Please reason step by step, "
        "and put your final answer within \\boxed{}.",
        answer_form="bare_box",  # it asks for no tags
    ),
    "answer_tags": Prompt(
        system="Reason about the problem between <think> and </think>, then write the final answer "
        "between <answer> and </answer>.",
        answer_form="tags",
    ),
    "perplexity_train": Prompt(
        "A conversation between User and Assistant. The user asks a question, and the Assistant "
        "solves it. The assistant first thinks about the reasoning process in the mind and then "
        "provides the user with the answer. The reasoning process and answer are enclosed within "
        "<think></think> and <answer></answer> tags, respectively, i.e., <think>reasoning process "
        "here</think> <answer>answer here</answer>. User: {question} Assistant: ",
        answer_form="tags",
    ),
    "perplexity_eval": Prompt(
        "You will be given a problem.Please reason step by step, and put your final answer within "
        "\\boxed{}. {question}",
        answer_form="bare_box",
    ),
    "boba": Prompt(
        "{question}\nPlease reason step by step, and put your final answer within \\boxed{}.",
        answer_form="bare_box",
    ),
    "rlite": Prompt(
        '{question} Let\'s think step by step and output the final answer after "####".',
        answer_form="hashes",
    ),
}
# Types of the keys that name them.
PromptName = Annotated[str, OneOf(tuple(PROMPTS))]
AnswerForm = Annotated[str, OneOf(ANSWER_FORMS)]


def form_of(prompt_name: str) -> str:
    """The one of `ANSWER_FORMS` that a key of `PROMPTS` asks for; "none" asks for a box."""
    return PROMPTS[prompt_name].answer_form


def build_prompt(question: str, prompt_name: str = "none") -> list[dict[str, str]]:
    """Chat messages for a bare question; `prompt_name` is a key of `PROMPTS`."""
    prompt = PROMPTS[prompt_name]
    return [
        {"role": role, "content": text.replace("{question}", question)}
        for role, text in (("system", prompt.system), ("user", prompt.user))
        if text
    ]


def write_answer(answer: str, answer_form: str) -> str:
    """The final answer in one of `ANSWER_FORMS`."""
    if answer_form == "tags":
        return f"{ANSWER_OPEN}{answer}{ANSWER_CLOSE}"
    if answer_form == "hashes":
        return f"{HASHES} {' '.join(answer.split())}"  # it ends with its line
    return f"\\boxed{{{answer}}}"


def build_completion(solution: str, answer: str, answer_form: str = "box") -> str:
    """`<think>` solution `</think>` and the answer in one of `ANSWER_FORMS`."""
    final = write_answer(answer, answer_form)
    return f"{THINK_OPEN}\n{solution.strip()}\n{THINK_CLOSE}\n\n{final}"


def render_prompt(prompt: Prompted, tokenizer: Any) -> str:
    """The text a model continues: chat template applied, generation prompt added.

    A raw prompt gets no more than the BOS with which its tokenizer begins a text. A template that
    leaves out a message is refused.
    """
    text = apply_template(prompt, tokenizer)
    check_whole(prompt, text, tokenizer)
    return text


def apply_template(prompt: Prompted, tokenizer: Any) -> str:
    """The same, of a template that may leave out a message."""
    if isinstance(prompt, str):
        return written_start(tokenizer) + raw_text(prompt, tokenizer)
    try:
        return tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # jinja's own errors, or any that a template raises
        reason = " ".join(str(error).split())
        raise template_error(f"cannot render a prompt ({reason})", tokenizer) from error


def raw_text(prompt: str, tokenizer: Any) -> str:
    """A raw prompt as the tokenizer takes it, which writes BOS itself: without one in the text."""
    return prompt.removeprefix(written_start(tokenizer))


def written_start(tokenizer: Any) -> str:
    """The BOS that a tokenizer writes before a text, "" if it writes none."""
    ids = tokenizer("a")["input_ids"]
    first, *_ = tokenizer("a", add_special_tokens=False)["input_ids"]
    return "".join(tokenizer.convert_ids_to_tokens(ids[: ids.index(first)]))


def check_whole(prompt: Prompted, text: str, tokenizer: Any) -> None:
    """Refuse a rendered prompt that lacks a message."""
    if role := left_out(prompt, text):
        raise template_error(f"the template leaves out the {role} message", tokenizer)


def template_error(fault: str, tokenizer: Any) -> UserError:
    """The error of a tokenizer's chat template."""
    return UserError(
        f"chat_template: {tokenizer.name_or_path}: {fault}; fix the template, or give SFT another "
        "one with chat_template_path"
    )


def left_out(prompt: Prompted, text: str) -> str:
    """The role of a message that is not in a rendered prompt, "" where all are.

    Templates may trim a message, and cut thoughts out of the assistant's.
    """
    for message in () if isinstance(prompt, str) else prompt:
        if message["role"] != "assistant" and message["content"].strip() not in text:
            return message["role"]
    return ""


def prefills_think(prompt: str) -> bool:
    """Whether a rendered prompt already ends with an open `<think>` (R1-style templates)."""
    return prompt.rstrip().endswith(THINK_OPEN)


def render_completion(completion: str, prompt: str) -> str:
    """The text to train on after a rendered `prompt`, without a `<think>` it already ends with."""
    if not prefills_think(prompt):
        return completion
    rest = completion.removeprefix(THINK_OPEN)
    if prompt[-1].isspace():  # the template's own white space after the tag replaces ours
        return rest.lstrip()
    return rest
