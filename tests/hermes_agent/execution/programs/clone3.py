"""A new user namespace by clone3, which filters that look at the arguments of clone do not see."""

import ctypes
import os
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)
wanted = struct.pack("11Q", 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
pid = libc.syscall(435, wanted, len(wanted))
if pid == 0:
    os._exit(0)
if pid > 0:
    os.waitpid(pid, 0)
sys.exit(0 if pid > 0 else 1)
