"""The HTTP door: OpenAI-compatible chat, conversations, health and metrics. `server.ApiServer` runs it in the gateway.

A request is a message like any other: it is authorised, stored in the inbox, answered by a turn and delivered through
the outbox; `exchange.ApiAdapter` is the platform adapter that hands the answer to the waiting response.
"""
