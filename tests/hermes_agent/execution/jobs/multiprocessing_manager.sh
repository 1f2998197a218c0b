#!/usr/bin/env bash
# A manager (a unix socket of its own), queues, pipes and shared values between processes.
# needs: python3
set -eu
cat > job.py <<'PY'
import multiprocessing


def fill(shared, queue, pipe, counter):
    shared["key"] = [1, 2]
    queue.put("from the child")
    pipe.send({"a": 1})
    with counter.get_lock():
        counter.value += 1


if __name__ == "__main__":
    queue, counter = multiprocessing.Queue(), multiprocessing.Value("i", 0)
    here, there = multiprocessing.Pipe()
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        children = [multiprocessing.Process(target=fill, args=(shared, queue, there, counter)) for _ in range(2)]
        for child in children:
            child.start()
        assert [queue.get(timeout=20) for _ in children] == ["from the child"] * 2
        assert here.recv() == {"a": 1}
        for child in children:
            child.join(20)
            assert child.exitcode == 0
        assert dict(shared) == {"key": [1, 2]} and counter.value == 2
        lines = manager.Queue()
        lines.put(3)
        assert lines.get() == 3
PY
timeout 60 python3 job.py
echo JOB OK
