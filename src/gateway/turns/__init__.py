"""Turns: one run of the agent and what surrounds it.

`runner` runs a turn from beginning to end; start there. `running_turn` is a turn while it runs, `agents` is the cache
of agents, `user_message` and `attachments` make the model's input, `reply` makes the chat's answer, and `live_view`
shows a running turn to terminals.
"""
