"""Frames on their way to a client: their encoding, the bounded queue, and the transports. Start with `frames`."""
