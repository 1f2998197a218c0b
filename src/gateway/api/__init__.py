"""API: the HTTP server with the wire format of OpenAI's chat completions.

`server` opens the port and lists the paths; start there. `auth` checks a client's key, `chat` answers a request,
`exchange` is one request that waits (and the adapter that answers it), `conversations` names its conversation,
`sessions` lists and reads conversations, `bodies` reads request bodies, `openai_wire` writes responses, `health` serves
probes and metrics, `error_boundary` turns errors into responses. `webhooks` passes on requests of platforms, `mcp`
serves other agents, and `http_protocol` limits connections.
"""
