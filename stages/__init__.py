"""The stages of the pipeline, each a command."""
