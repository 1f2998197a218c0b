"""Compression: when a conversation is made shorter, what of it is kept, and what stands for the rest.

`policy` decides, `plan` splits, `summary` writes the text that stands for the middle, `compress` does it: one rotation,
or nothing.
"""
