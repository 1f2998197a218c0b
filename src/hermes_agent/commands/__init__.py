"""commands: to be described."""
