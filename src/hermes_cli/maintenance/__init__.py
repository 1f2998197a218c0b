"""Commands that look after a home: people, backups, the store, the configuration, plug-ins, imports."""
