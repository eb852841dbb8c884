"""Extract, compare, grade: `grade` for one completion, `correctness_reward` for TRL's trainers."""

from grading.grade import grade
from grading.reward import correctness_reward

__all__ = ["correctness_reward", "grade"]
