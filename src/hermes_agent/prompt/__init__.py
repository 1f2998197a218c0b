"""The bytes of a request: the system text and tools that every request begins with, then the stored messages.

Start reading at `transcript`. `prefix` stores the beginning and checks that it never changes; `system_prompt` makes its
text.
"""
