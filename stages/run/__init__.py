"""What keeps a run: its folder, saving, the launch and restarts."""
