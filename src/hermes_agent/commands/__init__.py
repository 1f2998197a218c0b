"""Slash commands. `registry` holds the table and runs typed commands; `base` defines a command and its context."""
