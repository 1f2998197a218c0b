"""The line chat: `command` reads the command line, `oneshot` answers one question, `repl` is the interactive chat.

`render` shows a turn, `keyboard` reads typed lines, `approval` asks for permission, and `terminal_loop` keeps the
terminal on the main thread while work runs on the agents' loop.
"""
