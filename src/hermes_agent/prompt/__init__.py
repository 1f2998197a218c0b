"""The bytes of a request: the system text and tools that every request begins with, then the stored messages.

Start reading at `transcript`. `prefix` keeps the beginning byte for byte the same, `system_prompt` makes its text.
"""
