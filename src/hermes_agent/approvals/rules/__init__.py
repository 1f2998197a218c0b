"""Rules about programs and paths: needs of programs, calls that are never run, meanings of paths."""
