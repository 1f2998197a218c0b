"""`hermes doctor`: checks of the machine, the configuration and the store, each with the command that fixes it.

`command` runs the checks and prints them; `fixes` defines the input and result of a check.
"""
