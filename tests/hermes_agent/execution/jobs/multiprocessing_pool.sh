#!/usr/bin/env bash
# A pool of processes, a process pool executor and their semaphores.
# needs: python3
set -eu
cat > job.py <<'PY'
import concurrent.futures
import multiprocessing


def square(x):
    return x * x


if __name__ == "__main__":
    with multiprocessing.Pool(3) as pool:
        assert pool.map(square, range(50), chunksize=5) == [x * x for x in range(50)]
        assert sum(pool.imap_unordered(square, range(10))) == 285
        assert pool.apply_async(square, (9,)).get(20) == 81
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        assert list(executor.map(square, range(5))) == [0, 1, 4, 9, 16]
    lock, event, gate = multiprocessing.Lock(), multiprocessing.Event(), multiprocessing.Semaphore(2)
    with lock, gate:
        event.set()
    assert event.wait(1)
PY
timeout 60 python3 job.py
echo JOB OK
