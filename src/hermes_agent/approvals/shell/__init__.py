"""Parsing of shell command lines: syntax, words, and visible needs."""
