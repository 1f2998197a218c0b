"""Compression: when a conversation is made shorter, what of it is kept, and what stands for the rest.

`when` decides, `select` splits, `summary` and `fallback` write the text that stands for the middle, `run` does it: one
rotation, or nothing.
"""
