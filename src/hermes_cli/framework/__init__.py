"""Helpers that every command uses: argument parser, output, text, prompts and store.

Start with `parser` (arguments and verbs) and `output` (the `CommandAnswer` of a command, tables, pages).
"""
