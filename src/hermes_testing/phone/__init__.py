"""A pretend phone for the terminal: one person's chat on the pretend Telegram. `python -m hermes_testing.phone`."""
