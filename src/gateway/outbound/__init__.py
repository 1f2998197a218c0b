"""Outbound: from the outbox to a chat.

`deliverer` takes items out of the outbox and records what became of them; start there. `send_item` carries one item to
one adapter, `streaming` shows an answer while it is made, `notices` holds what the gateway itself says.
"""
