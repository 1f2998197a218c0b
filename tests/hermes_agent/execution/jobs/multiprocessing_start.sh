#!/usr/bin/env bash
# All three ways to start a process: fork, spawn and forkserver.
# needs: python3
set -eu
cat > job.py <<'PY'
import multiprocessing
import os


def work(queue):
    queue.put(os.getpid())


if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        child = context.Process(target=work, args=(queue,))
        child.start()
        assert queue.get(timeout=30) == child.pid != os.getpid()
        child.join(30)
        assert child.exitcode == 0, method
        with context.Pool(2) as pool:
            assert pool.map(abs, [-1, -2]) == [1, 2]
        print(method)
PY
timeout 100 python3 job.py
echo JOB OK
