"""demo: to be described."""
