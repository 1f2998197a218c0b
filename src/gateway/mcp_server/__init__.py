"""Hermes as an MCP server: other agents list, search and read conversations, and ask questions.

Start with `tools` (the tools that a caller sees); `tasks` turns `ask` into an MCP task, in both protocol versions;
`asks` reads what became of a question from the store. A `Caller` says who asks and how a message gets in: the key of an
HTTP request (`gateway.api.mcp`) or the owner at this machine (`tui_gateway.mcp_caller`). `tools` and `tasks` import the
SDK, so everybody imports them late.
"""
