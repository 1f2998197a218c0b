"""JSON-RPC for terminal and desktop clients: over stdio (`entry`) and over a WebSocket of the API server (`ws`).

Start with `server`: the live sessions, the dispatch of requests, and the names that the seed tests replace. A prompt's
path is `server → rpc.turns → session.prompt → the agent`.

wire       encodes, queues and writes frames, so that nobody waits for a slow reader
session    a live session: its agent, its turns, its approvals, and turns that other processes run
rpc        the methods with their parameters and results; docs/contributors/rpc.md is generated from them
"""
