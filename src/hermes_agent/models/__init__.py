"""Calls to models. Start at `call`; `base` has the types, `openai_chat` and `anthropic` are the two wire formats.

`http` holds the connections, `providers` finds the configured endpoints, `errors` explains failures.
"""
