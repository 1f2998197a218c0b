"""Conversations, their sessions (segments), transcripts and routes.

Start with `ledger`: its verbs are the only code that creates a session or moves a route. `transcript` writes and reads
messages, `chain` finds the newest session of a conversation.
"""
