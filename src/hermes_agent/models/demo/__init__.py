"""The built-in demo model: scripted and offline. Start at `model`; `replies` says what it answers."""
