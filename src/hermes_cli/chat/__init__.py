"""Talking to Hermes in lines: `command` reads the command line, `oneshot` answers one question, `repl` is the chat.

`render` puts a turn on the screen, `keyboard` reads what is typed, `approval` asks for permission, and
`terminal_loop` keeps the terminal on the main thread while work runs on the agents' loop.
"""
