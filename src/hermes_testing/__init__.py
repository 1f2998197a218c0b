"""Fakes and fixtures for tests of plug-ins, platforms and Hermes itself. No package but the demo's commands uses it.

Start at `scenario` (a whole gateway between fakes), `scripted` (a model) or `telegram` (a platform).
"""
