"""Outbound: from the outbox to a chat.

`deliverer` takes items out of the outbox and records their outcomes; start there. `send_item` sends one item through
one adapter, `streaming` shows an answer while the model writes it, `notices` holds the gateway's own messages.
"""
