"""syscall.py NUMBER [ARGUMENT…]: one system call; exit 0 if the kernel did it."""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
words = [int(word) if word.lstrip("-").isdigit() else word.encode() for word in sys.argv[1:]]
answer = libc.syscall(*[ctypes.c_long(word) if isinstance(word, int) else word for word in words])
print(answer, os.strerror(ctypes.get_errno()))
sys.exit(0 if answer >= 0 else 1)
