"""Child processes: the one executor that starts them, and the walls that the kernel keeps around them.

Start with `base` (the words: command, opening, permit) and `executor` (which wall holds, and starting a command).
`bubblewrap` and `landlock` build one wall each, `seccomp` the filter that both use, `view` says what a confined command
sees of the file system, `process` is a running child, `supervisor` ends what a command without a pid namespace left.
"""
