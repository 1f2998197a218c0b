"""The `hermes` command: the commands, the window, plug-ins, set-up and doctor.

Start with `commands` (the table of all commands), then `main` (finds the command and runs it).
"""
