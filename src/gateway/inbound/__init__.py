"""Inbound: from a message to its turn.

`intake` decides about a message, stores it and only then acknowledges it; start there. `lanes` queues messages by
route, `worker` processes a lane, `recovery` continues the work of a process that died, and `terminal_messages` accepts
messages from terminals.
"""
