"""Vocabulary: the words and commands that the readers know, one list for each use."""

import re

# Functions of one argument.
TRIGONOMETRIC = {
    "sin", "cos", "tan", "cot", "sec", "csc", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
}  # fmt: skip
FUNCTIONS = TRIGONOMETRIC | {"ln", "log", "lg", "exp"}
# Greek letters, as variables.
LETTERS = {
    "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa",
    "lambda", "mu", "nu", "xi", "omicron", "rho", "sigma", "tau", "phi", "chi", "psi",
    "omega", "Delta", "Omega", "Sigma", "Gamma", "Theta", "Lambda", "Phi", "Psi", "ell",
}  # fmt: skip
# Words that are no products of letters: 0 (or 1) is not 0.
ENGLISH = {
    "or", "and", "not", "is", "it", "to", "of", "in", "if", "no", "by", "be", "so", "we", "do",
    "go", "us", "up", "my", "me", "he", "as", "are", "for", "the", "was", "but", "can", "may",
    "one", "two", "six", "ten", "four", "five", "nine", "zero", "half", "both", "else", "none",
    "any", "all", "yes", "also", "even", "odd", "then", "than", "with", "from", "mod", "plus",
}  # fmt: skip
# Commands that make a name of what stands in their braces.
MARKS = {"overline", "vec", "hat", "mathbf", "angle", "triangle", "widehat", "mathcal", "tilde"}
# Words after a number that are no unit: the number is not the value, or not alone.
NO_UNIT = {
    "is", "are", "was", "not", "no", "if", "for", "when", "or", "and", "but", "mod", "modulo",
    "more", "less", "fewer", "than", "least", "most", "about", "approximately", "roughly",
    "around", "to", "over", "plus", "minus", "times", "half", "halves", "third", "thirds",
    "quarter", "quarters", "fourth", "fourths", "fifth", "fifths", "tenth", "tenths",
    "hundredths", "pi", "root", "roots", "base", "point", "negative", "factorial", "maybe",
    "perhaps", "possibly", "either", "neither", "both", "with", "without", "by", "from",
    "where", "which", "that", "some", "any", "all", "other", "otherwise", "then", "so",
    "also", "up", "down", "equals", "th", "st", "nd", "rd", "below", "above", "zero", "short",
    "away", "ago", "off", "out", "radical", "followed", "percent",
}  # fmt: skip
# Words that deny or blur the value after them: `not 5`, `at least 5`.
BLURRING = {
    "cannot", "but", "anything", "everything", "negative", "root", "square", "cube", "reciprocal",
    "opposite", "inverse", "half", "double", "twice", "triple", "impossible", "unless",
    "not", "no", "never", "least", "most", "more", "less", "about", "approximately",
    "roughly", "around", "or", "either", "neither", "maybe", "if", "than", "between",
    "except", "without",
}  # fmt: skip
# C_{10}^{3}, as its tokens with spaces between.
COMBINATIONS = re.compile(r"_ (?:\{ (\d+) \}|(\d+)) \^ (?:\{ (\d+) \}|(\d+))(?!\S)")
