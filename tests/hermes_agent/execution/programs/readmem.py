"""readmem.py PID: copy the stack of another process, where its environment lies, with process_vm_readv."""

import ctypes
import re
import sys

libc = ctypes.CDLL(None, use_errno=True)


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


pid = int(sys.argv[1])
with open(f"/proc/{pid}/maps") as maps:  # noqa: PTH123 - it runs where the project is not
    areas = re.findall(r"^(\w+)-(\w+) rw.*\[(?:stack|heap)\]", maps.read(), re.M)
for begin, end in areas:
    size = int(end, 16) - int(begin, 16)
    copy = ctypes.create_string_buffer(size)
    here, there = Piece(ctypes.addressof(copy), size), Piece(int(begin, 16), size)
    if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0:
        sys.stdout.buffer.write(copy.raw)
