"""What all stages share: settings, manifests, the lock of a run, prompts, and the command."""
