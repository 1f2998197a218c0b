"""`hermes setup` and `hermes gateway setup`: choose a model, connect a chat platform. Start with `command`."""
