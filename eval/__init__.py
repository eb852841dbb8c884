"""Evaluation, audit and report."""
