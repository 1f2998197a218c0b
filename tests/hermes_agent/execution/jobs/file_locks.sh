#!/usr/bin/env bash
# flock(1), fcntl locks between processes, an exclusive create.
# needs: flock python3
set -eu
(flock 9; sleep 0.4; echo first >> order) 9> lock & sleep 0.1
flock lock sh -c 'echo second >> order'
wait
test "$(tr '\n' ' ' < order)" = 'first second '
(flock -n 9; if flock -n lock true; then exit 1; fi) 9> lock
python3 - <<'PY'
import fcntl
import os
with open("l", "w") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    if not (pid := os.fork()):
        with open("l", "w") as other:
            try:
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
os.close(os.open("once", os.O_CREAT | os.O_EXCL))
PY
echo JOB OK
