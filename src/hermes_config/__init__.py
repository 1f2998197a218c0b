"""Home, settings, limits, redaction and the error tree: what every other package builds on. Imports nothing else of ours.

Start with `config`, which reads a home, and `sections`, where every setting is declared.
"""
