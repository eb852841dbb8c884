"""Data: sources, decontamination, the build, and what samples completions."""
