"""maintenance: to be described."""
