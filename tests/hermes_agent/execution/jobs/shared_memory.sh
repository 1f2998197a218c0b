#!/usr/bin/env bash
# Named shared memory and a memory-mapped file between two processes.
# needs: python3
set -eu
cat > job.py <<'PY'
import mmap
import multiprocessing
from multiprocessing import shared_memory


def write(name):
    block = shared_memory.SharedMemory(name)
    block.buf[:5] = b"hello"
    block.close()


if __name__ == "__main__":
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    child = multiprocessing.Process(target=write, args=(block.name,))
    child.start()
    child.join(20)
    assert bytes(block.buf[:5]) == b"hello"
    block.close()
    block.unlink()
    with open("mapped", "wb") as file:
        file.truncate(1 << 20)
    with open("mapped", "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[:3] = b"abc"
        view.flush()
    assert open("mapped", "rb").read(3) == b"abc"
PY
timeout 60 python3 job.py
echo JOB OK
