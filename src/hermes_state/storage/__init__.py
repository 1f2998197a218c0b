"""Storage engines: SQLite and PostgreSQL behind one interface, and the named SQL statements both run.

Start with `base` (what a connection and an engine can do), then `writer` (one writer a process, group commit);
`schema` decides which database may be opened, makes a fresh one and brings an older one up.
"""
