"""The memory: the only package that runs SQL.

`SessionDB` is the store; `AsyncSessionDB` the same for event loops. Nothing is imported before it is needed.
"""

from __future__ import annotations
