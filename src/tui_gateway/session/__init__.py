"""A live session: a client's view of one stored conversation. Start with `live_session`, then `prompt`.

`session_view` is what clients are shown, `approvals` what they are asked, `join` how one arrives in the middle of a
turn, `attach` and `follow` conversations that another process drives, `idle_sessions` when a session is closed.
`services` is what `server` hands to all of these.
"""
