"""daemon.py SECONDS: a daemon by the book: two forks, a session of its own, no descriptors; then touch survivor."""

import os
import sys
import time

here = os.getcwd()  # noqa: PTH109 - it runs where the project is not
if os.fork():
    sys.exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 100)
time.sleep(float(sys.argv[1]))
os.close(os.open(f"{here}/survivor", os.O_CREAT))
