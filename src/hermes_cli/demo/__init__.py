"""`hermes demo`: Hermes on a throw-away home, with a fake Telegram and the built-in model. Start with `command`."""
