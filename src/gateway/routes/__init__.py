"""Routes: find the conversation for a chat.

`source` is a message's chat and author, `keys` makes the route's key from it, `store` finds its conversation (start
there) with `resolver`, and `reset_policy` decides when a route starts a new one. `entries` offers routes as a
dictionary, `compat` has the names of hermes-agent's `SessionStore`, and `mirror` writes `sessions.json` for people.
"""
