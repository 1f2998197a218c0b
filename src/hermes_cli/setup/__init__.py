"""`hermes setup` and `hermes gateway setup`: choose a model, connect Telegram. Start with `command`."""
