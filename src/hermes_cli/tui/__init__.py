"""The terminal UI, made with Textual. `launch` opens the window, `app` is the window.

The window stores no conversation and runs no agent. A server process (`tui_gateway.entry`) does both; they use the
documented JSON-RPC protocol over pipes (`rpc_client`). So the window reacts to keys at once, whatever the agent does,
and a server that dies loses nothing: the next one resumes the stored conversation.
"""
