"""wire: to be described."""
