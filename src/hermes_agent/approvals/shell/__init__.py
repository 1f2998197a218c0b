"""Reading a command line of the shell: its syntax, its words, and what it visibly needs."""
