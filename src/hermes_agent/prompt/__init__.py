"""prompt: to be described."""
