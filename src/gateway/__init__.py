"""The gateway: messages from platforms in, turns of agents, answers out, and the HTTP API.

A message passes the chapters in this order: `platforms` (the adapter reads it), `access` (may this sender?),
`inbound` (stored, then queued in the lane of its route), `routes` (which conversation), `turns` (the agent runs),
`outbound` (the answer is sent). `chat` holds slash commands and questions to people, `api` the HTTP server, and
`mcp_server` the tools for other agents. `main` starts the process and `run` puts the parts together; start reading at
`inbound.intake`.
"""
