"""builtin: to be described."""
