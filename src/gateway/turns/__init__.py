"""Turns: one run of the agent and what surrounds it.

`runner` runs a turn from beginning to end; start there. `running_turn` is a turn while it runs, `agents` the cache of
agents, `user_message` and `attachments` what the model is given, `reply` what the turn owes its chat, and `live_view`
shows a running turn to terminals.
"""
