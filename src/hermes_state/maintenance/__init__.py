"""Looking after a store: what is wrong with it, and what may go.

Start with `retention.run`, which a gateway calls once a day; `check` finds and fixes contradictions between rows,
`prune` removes old sessions, `stats` counts.
"""
