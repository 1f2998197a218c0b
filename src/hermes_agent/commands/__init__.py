"""Slash commands. `registry` has the table and the way from typed text to an answer; `base` what a command is."""
