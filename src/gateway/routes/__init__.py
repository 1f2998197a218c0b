"""Routes: from where somebody writes to the conversation they mean.

`source` says where a message comes from, `keys` makes the route's key of it, `store` finds its conversation (start
there) with `resolver`, and `reset_policy` says when a route begins a new one. `entries` shows routes as a dictionary,
`compat` holds the names of hermes-agent's `SessionStore`, and `mirror` writes `sessions.json` for people.
"""
