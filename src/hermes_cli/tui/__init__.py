"""The terminal UI: a window on conversations, made with Textual. `launch` opens it, `app` is the window.

It holds no conversation and runs no agent. A server process (`tui_gateway.entry`) does both, and the two speak the
documented JSON-RPC protocol over pipes (`rpc_client`); so whatever the agent is busy with, a key that is pressed is
seen at once, and a server that dies takes no word with it: the next one resumes what is stored.
"""
