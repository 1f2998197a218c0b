"""JSON-RPC for terminal and desktop clients: over stdio (`entry`) and over a WebSocket of the API server (`ws`).

Start with `server`: the live sessions, the dispatch of requests, and the names that the seed tests replace. A prompt's
path is `server → rpc.turns → session.prompt → the agent`.

wire       how frames are encoded, queued and written, so that nobody waits for a slow reader
session    a live session: its agent, its turns, its approvals, and turns that other processes run
rpc        the methods: what each takes and gives, by which requests are checked and docs/contributors/rpc.md is made
"""
