"""Prompts and completions: system prompts, tags, and the one place a chat template is applied.

`build_prompt` and `build_completion` make the tokenizer-free parts stored in the data files;
`render_prompt` and `render_completion` turn them into the exact text a tokenizer is given. SFT,
difficulty measurement and evaluation call them; GRPO hands the same messages to TRL, which
applies the same template.
"""

from typing import Any

from data_prep.errors import UserError

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"

# Chosen by name with the data key `system_prompt`.
SYSTEM_PROMPTS = {
    "none": "",
    "think": (
        "Think about the problem step by step between <think> and </think>, "
        "then give the final answer in \\boxed{}."
    ),
    "boxed": (
        "You will be given a problem. Please reason step by step, "
        "and put your final answer within \\boxed{}."
    ),
    "answer_tags": (
        "Reason about the problem between <think> and </think>, then write the final answer "
        "between <answer> and </answer>."
    ),
}

# Where a prompt asks for the answer: in `\boxed{}`, or between `<answer>` and `</answer>`.
ANSWER_FORMS = ("box", "tags")


def form_of(system_prompt: str) -> str:
    """The one of `ANSWER_FORMS` that a key of `SYSTEM_PROMPTS` asks for; "none" asks for a box."""
    return "tags" if system_prompt == "answer_tags" else "box"


def build_prompt(question: str, system_prompt: str = "none") -> list[dict[str, str]]:
    """Chat messages for a bare question; `system_prompt` is a key of `SYSTEM_PROMPTS`."""
    system = SYSTEM_PROMPTS[system_prompt]
    messages = [{"role": "system", "content": system}] if system else []
    return [*messages, {"role": "user", "content": question}]


def write_answer(answer: str, answer_form: str) -> str:
    """The final answer in one of `ANSWER_FORMS`."""
    if answer_form == "tags":
        return f"{ANSWER_OPEN}{answer}{ANSWER_CLOSE}"
    return f"\\boxed{{{answer}}}"


def build_completion(solution: str, answer: str, answer_form: str = "box") -> str:
    """`<think>` solution `</think>` and the answer in one of `ANSWER_FORMS`."""
    final = write_answer(answer, answer_form)
    return f"{THINK_OPEN}\n{solution.strip()}\n{THINK_CLOSE}\n\n{final}"


def render_prompt(messages: list[dict[str, str]], tokenizer: Any) -> str:
    """The text a model continues: chat template applied, generation prompt added."""
    from jinja2 import TemplateError

    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError as error:
        raise UserError(
            f"chat_template: {tokenizer.name_or_path}: cannot render a prompt ({error}); mend it, "
            "or give SFT another with chat_template_path"
        ) from error


def prefills_think(prompt: str) -> bool:
    """Whether a rendered prompt already ends with an open `<think>` (R1-style templates)."""
    return prompt.rstrip().endswith(THINK_OPEN)


def render_completion(completion: str, prompt: str) -> str:
    """The text to train on after a rendered `prompt`, without a `<think>` it already ends with."""
    if not prefills_think(prompt):
        return completion
    rest = completion.removeprefix(THINK_OPEN)
    # The template's own white space after the tag replaces ours.
    return rest.lstrip() if prompt[-1].isspace() else rest
