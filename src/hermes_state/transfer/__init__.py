"""Import and export of a store: archives, backups, other databases, homes of hermes-agent.

Start with `backup` (copies of a store) or `archive_write` (conversations as a file). `tables` describes the schema as
data, so that a new table is copied without a change here.
"""
