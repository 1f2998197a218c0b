"""import_home: to be described."""
