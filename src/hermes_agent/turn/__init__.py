"""turn: to be described."""
