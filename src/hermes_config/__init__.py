"""The ground: home, configuration, limits and the error tree. Imports nothing else of ours."""
