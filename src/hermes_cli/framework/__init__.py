"""What every command uses: the argument parser, output, text, prompts, the store and crash reports.

Start with `parser` (arguments and verbs) and `output` (the `CommandAnswer` of a command, tables, pages).
"""
