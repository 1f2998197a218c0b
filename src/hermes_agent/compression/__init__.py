"""Compression: replaces the middle of a long conversation by a summary.

`policy` decides when, `plan` chooses the kept rows, `summary` makes the text that replaces the others, and `compress`
applies the result as one rotation, or changes nothing.
"""
