"""protocol: to be described."""
