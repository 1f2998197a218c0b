"""Home, settings, limits, redaction and error classes, on which all other packages build.

Start with `config`, which reads a home, and `sections`, where every setting is declared.
"""
