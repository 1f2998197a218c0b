"""Home, settings, limits, redaction and the error tree: what all other packages build on.

Start with `config`, which reads a home, and `sections`, where every setting is declared.
"""
