"""storage: to be described."""
