"""Tools, resources and prompts of MCP servers (Model Context Protocol), on the protocol's official SDK.

Start with `servers` (what config.yaml says of a server, and what its confinement lets through) and `connection` (the
task that keeps one server connected, its state and its calls). `transport` is the wire: a confined program, or HTTP,
both with a bound on what is read. `source` offers the tools to agents, `results` turns answers into results, `login` is
OAuth. The SDK is imported only when a connection is made, on the thread of the connections.
"""
