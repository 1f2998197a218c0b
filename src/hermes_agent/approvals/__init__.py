"""Approvals: may this call run, and who has to be asked?

`gate` gives or asks for permission; start there. `shell.judge` finds what a command needs, by the tables of `rules`;
`targets` finds where a call's addresses come from, `policy` reads the settings, `text` words the questions.
"""
