"""Lenient reading: one candidate, whatever its form; and no credit for offering many."""

import pytest

from data_prep.grading.extract import read_leniently
from data_prep.grading.grade import grade, grade_leniently

READINGS = [
    # Where: behind the thought, else anywhere.
    (r"<think>so \boxed{3}</think> \boxed{4}", "4"),
    (r"3, I mean</think> \boxed{4}", "4"),
    (r"<think>so \boxed{4}</think> Done.", "4"),
    ("<think>so 2 + 2 = 4</think>", "4"),
    (r"<think>so \boxed{4}. But wait", "4"),
    ("<think>a</think> \\boxed{4}\n<think>a</think> \\boxed{4}", "4"),
    # 1. Boxes: the last one, with what stands right beside it.
    (r"\boxed{3}, which times two gives \boxed{6}", "6"),
    (r"\boxed{5} or \boxed{4}", "5, 4"),
    ("\\boxed{4}\n\\boxed{4.0}", "4.0"),
    (r"(a) \boxed{3} (b) \boxed{4}", "4"),
    (r"It goes into \boxed{}. 6 * 7 = 42", "42"),
    (r"\boxed 4", "4"),
    # 2. Tags.
    ("<answer>3</answer> or 4", "3"),
    ("<answer> It is 4 apples. </answer>", "4"),
    (r"<answer>\frac12", r"\frac12"),
    # 3. A box that the text ended within: a plain number or nothing.
    (r"6 = 2 * 3, so \boxed{72", "72"),
    (r"6 = 2 * 3, so $\boxed{1,072.5$.", "1,072.5"),
    (r"6 = 2 * 3, so \boxed{\frac{1", None),
    (r"6 = 2 * 3, so \boxed{7 + x", None),
    (r"6 = 2 * 3, so \boxed{", None),
    # 5. GSM8K's form, and headings that look like it.
    ("She has 3 left.\n#### 72\n", "72"),
    ("#### Conclusion\nShe has 4 apples.", "4"),
    ("#### 4. The total\nSo 9.", "9"),
    # 6. Statements.
    ("The answer is 3. No: the answer is 42. I took 7 steps.", "42"),
    ("The final answer is:\n\\[\nx = 5\n\\]\nDone in 3.", "x = 5"),
    ("**Answer:**\n\n$$\\frac{3}{4}$$", r"\frac{3}{4}"),
    ("The answer to the first question is therefore 7", "7"),
    ("The answer is Monday", "Monday"),
    ("The answer is 7 or 8.", "7 or 8."),
    # 7. The end of the last line.
    (r"We get $x = \frac{3}{4}$.", r"\frac{3}{4}"),
    ("3 apples\n\\[ 3 + 4 = 7 \\]\n", "7"),
    ("48 + 24 = <<48+24=72>>72", "72"),
    ("Then 3 + 4 = 7. She bought 5 more, so 12 in total.", "12"),
    ("So 9 + 6 = 15 white roses out of the 24.", "15"),
    ("The rest is 9 + 6 = 15 cm", "15 cm"),
    ("The rest is 9 + 6 = 15 liters of the 24", "15 liters"),
    (r"If $a = 3,$ then the value of $e$ is $\frac{16}{5}.$", r"\frac{16}{5}"),
    ("\\begin{align*}\nx &= 6 \\\\\n&= 2 + 22.\n\\end{align*}", "2 + 22"),
    ("x <= 5", "x <= 5"),
    # 8. The last formula or number.
    ("She had 5 apples and 6 pears. That makes 11 fruits.", "11"),
    (r"It follows that $x+1$ is what we want", "x+1"),
    ("It is 7 or 8.", "7, 8"),
    ("It is not 7", None),
    ("I do not know.", None),
    ("hello", None),
    ("<think></think>", None),
    ("", None),
]


@pytest.mark.parametrize(("completion", "expected"), READINGS)
def test_reading(completion, expected):
    assert read_leniently(completion) == expected


OPTIONS = [
    ("(A) is too small, so it is (B)", "B"),
    ("Answer: B", "B"),
    ("**Answer: B**", "B"),
    ("The answer is (B) because (A) fails", "B"),
    (r"The correct choice is $\text{B}$", "B"),
    ("It must be option B.", "B"),
    ("B. 12", "B"),
    ("B) 12", "B"),
    ("**B**", "B"),
    ("<answer>(B) 12</answer>", "B"),
    (r"\boxed{B}", "B"),
    (r"(A) fails. \boxed{\text{(B)}}", r"\text{(B)}"),
    ("(A) or (B)", "A, B"),
    ("I think A or B", "A, B"),
    ("<think>(B)</think> Done.", "B"),
    ("A man has a plan", None),
    ("A man has 12 plans for it", "12"),
]


@pytest.mark.parametrize(("completion", "expected"), OPTIONS)
def test_option(completion, expected):
    assert read_leniently(completion, is_choice=True) == expected


def test_the_gold_tells_whether_letters_are_options():
    texts = [
        "(A) fails, (B) holds for 12",
        "(A) fails, (B) holds for 12",
        "Answer: B",
        "(A) or (B)",
    ]
    golds = [r"\text{(B)}", "12", ["12", "B"], "B"]
    assert grade_leniently(texts, golds) == ["right", "right", "right", "wrong"]


def test_grades():
    graded = {
        "The answer is approximately 7.": "right",
        "She needs **7 cm**": "right",
        r"So \boxed{14/2": None,
        "I am lost.": None,
        "So 8.": "wrong",
        r"\boxed{%%#}": None,  # read, but no value
    }
    assert grade_leniently(graded, ["7"] * len(graded)) == list(graded.values())
    assert grade_leniently(["So 8."], [["7", "8"]]) == ["right"]
    assert grade_leniently([], []) == []


@pytest.mark.parametrize(
    "spam",
    [
        "1 2 3 4 5 6 7",
        "Maybe 1, 2, 3, 4, 5, 6, 7",
        "It is 6 or 7",
        "The answer is 5, 6 or 7.",
        " ".join(rf"\boxed{{{i}}}" for i in range(8)),
        ", ".join(rf"\boxed{{{i}}}" for i in range(-90, 8)),
        "<answer>6, 7</answer>",
        " ".join(map(str, range(1, 5000))) + " 7",
        "= 5, 6, 7",
        "= 7 apples or 6 apples",
    ],
)
def test_offering_many_answers_is_not_right(spam):
    assert grade_leniently([spam, f"<think>a</think> {spam}"], ["7"] * 2) != ["right"] * 2
    assert "right" not in grade_leniently([spam], ["7"])


@pytest.mark.parametrize(
    "completion",
    [
        r"<think>a</think> \boxed{4}",
        r"<think>a</think> \boxed{4}, again \boxed{4.0}",
        r"<think>\boxed{5}</think> That makes \boxed{\frac{8}{2}} in 3 steps.",
    ],
)
def test_what_the_strict_grader_counts_is_read(completion):
    assert grade(completion, "4").verdict == "right"
    assert grade_leniently([completion], ["4"]) == ["right"]


HOSTILE = [
    r"\boxed{", r"\boxed", "$", "answer is ", "answer ", "=", "(", "####", "<answer>", "</answer>",
    "(B)", "(A) or ", r"\[", "1", "1/", "<think>", "</think>", "{", "}", "*", "<<", "[", "\\",
    "not 7 ", "or ", "\n=", "$$a", " ",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_hostile_text_is_read_to_the_end(piece):
    # 100,000 characters: a search that is quadratic in them would not return.
    text = piece * (100_000 // len(piece))
    for completion in (text, f"</think>{text} so 7", f"\\boxed{{{text}}}"):
        for is_choice in (False, True):
            read_leniently(completion, is_choice)
    assert read_leniently(f"{text}</think> \\boxed{{7}}") == "7"
