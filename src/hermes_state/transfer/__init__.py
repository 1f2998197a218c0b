"""Taking data out of a store and into one: archives, backups, other databases, homes of hermes-agent.

Start with `backup` (copies of a store) or `archive_write` (conversations as a file). `tables` describes the schema as
data, so that a new table is carried without a change here.
"""
