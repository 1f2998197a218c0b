"""A live session: a client's view of one stored conversation. Start with `live_session`, then `prompt`.

`session_view` builds what clients show and adds a client in the middle of a turn, `approvals` asks them questions,
`attach` and `follow` handle conversations that another process drives, `idle_sessions` closes sessions. `server` passes
`services` to all of these.
"""
