"""One turn: `state` (what it works with), `run` (the loop and its ends), `model_step`, `tool_calls`, `recovery`.

Start reading at `run`. `control` is what a person can do to a running turn, `callbacks` who watches it, `request` a
turn on behalf of a chat, `result` how it ended.
"""
