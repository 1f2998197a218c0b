"""Maintenance of a store: checks, repairs and removal of old rows.

Start with `retention.run`, which a gateway calls once a day; `check` finds and fixes contradictions between rows,
`prune` removes old sessions, `stats` counts.
"""
