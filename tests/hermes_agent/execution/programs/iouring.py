"""io_uring: exit 0 if a ring can be had. A ring opens files and sockets past a filter of system calls."""

import ctypes
import sys

libc = ctypes.CDLL(None, use_errno=True)
sys.exit(0 if libc.syscall(425, 8, ctypes.create_string_buffer(120)) >= 0 else 1)
