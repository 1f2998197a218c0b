"""The version, in one place: the build reads it from here, and `hermes --version` without any look-up."""

VERSION = "0.1.0.dev0"
