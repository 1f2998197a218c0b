"""transfer: to be described."""
