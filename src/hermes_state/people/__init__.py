"""People: identities and roles, pairings, budgets, usage, and the media files they sent.

Start with `people`.
"""
