"""session: to be described."""
