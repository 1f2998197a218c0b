"""One turn: `state` (its objects), `run` (the loop and the ways to end), `model_step`, `tool_calls`, `recovery`.

Start reading at `run`. `control` stops and steers a running turn, `callbacks` report to its watchers, `request`
describes a turn on behalf of a chat, `result` is its outcome.
"""
