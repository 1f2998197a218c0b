"""Routes: from where somebody writes to the conversation they mean.

`source` says where a message comes from, `keys` makes the route's key of it, `resolver` finds the conversation (start
there) and `reset_policy` says when a route begins a new one. `compat` holds the names of hermes-agent's `SessionStore`;
`mirror` writes `sessions.json` for people.
"""
