"""Rows in the shapes of the copies that data sets come in."""

WRAPPED = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    'Find $x$.\n\nRemember to put your answer on its own line after "Answer:".'
)
R1 = "<\uff5cUser\uff5c>{}<\uff5cAssistant\uff5c><think>\n"
NUMINA = {"problem": "Find $x$.", "solution": r"So \boxed{5}."}
NUMINA_15 = NUMINA | {
    "answer": "5", "problem_type": "Algebra", "question_type": "math-word-problem",
    "problem_is_valid": "Yes", "solution_is_valid": "Yes", "source": "olympiads",
}  # fmt: skip
DEEPMATH = {
    "question": "Find $x$.", "final_answer": r"\frac{1}{2}", "difficulty": 5.5,
    "topic": "Mathematics -> Algebra -> Group Theory",
    "r1_solution_1": "Hmm, a half.\n</think>\n\nThus\n\\boxed{0.5}",
    "r1_solution_2": "<think>\nSo \\boxed{7}, no, a half.\n</think>\n\\boxed{\\dfrac12}",
    "r1_solution_3": "Hmm, a third.\n</think>\n\\boxed{\\frac{1}{3}}",
}  # fmt: skip
MATH = {
    "problem": "Find $x$.", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}.",
    "answer": r"\frac{1}{2}", "subject": "Algebra", "level": 5,
    "unique_id": "test/algebra/12.json",
}  # fmt: skip
GPQA = {
    "Question": "Which gas is lightest?\n", "Correct Answer": "hydrogen\n",
    "Incorrect Answer 1": "neon", "Incorrect Answer 2": "argon\n\nof any kind",
    "Incorrect Answer 3": "xenon", "Explanation": "It has one proton.", "Record ID": "recX",
}  # fmt: skip
TRACE = {
    "id": "gsm8k-train-7", "source": "gsm8k", "question": "Find $x$.", "answers": ["5"],
    "solution": "Five.", "trace": 1, "level": None, "subject": "",
}  # fmt: skip


def chat(question, **extra):
    """A prompt of one user turn."""
    return [{"role": "user", "content": question} | extra]


def verl(question, gold, **extra):
    """A row of verl's parquet files."""
    return {
        "prompt": chat(question), "reward_model": {"ground_truth": gold, "style": "rule"},
        "extra_info": {"index": 0} | extra,
    }  # fmt: skip


def orz(truth, question="Find $x$."):
    """A training row of ORZ, as it is read."""
    human = {"from": "human", "value": question}
    return {"conversations": [human, {"from": "assistant", "ground_truth": truth}]}


def arc(number=4, labels="ABCDE", key="B", **changes):
    """A row of ARC with so many options."""
    choices = {"text": [f"option {n}" for n in range(number)], "label": list(labels[:number])}
    row = {"id": "M_1", "question": "Which?", "choices": choices, "answerKey": key}
    return row | changes
