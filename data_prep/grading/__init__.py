"""Extract, compare, grade: `grade` for one completion, `correctness_reward` for TRL's trainers."""

from data_prep.grading.grade import grade
from data_prep.grading.reward import correctness_reward

__all__ = ["correctness_reward", "grade"]
