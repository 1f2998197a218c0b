"""Child processes: the executor that starts them, and the sandboxes that the kernel enforces around them.

Start with `base` (the types: command, opening, permit) and `executor` (choice of the sandbox, start of a command).
`bubblewrap` and `landlock` each build a sandbox, `seccomp` the filter that both use, `view` lists the files that a
confined command sees, `process` is a running child, `supervisor` starts commands and ends the processes they leave.
"""
