"""The two engines behind one small surface: `Engine` gives connections to readers and one transaction to writers."""

from __future__ import annotations
