"""handle.py FOLDER FILE: write a file by a handle of it instead of its path (the way out of old containers)."""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer(136)
ctypes.c_uint.from_buffer(handle).value = 128
mount = ctypes.c_int()
if libc.name_to_handle_at(-100, sys.argv[2].encode(), handle, ctypes.byref(mount), 0):
    sys.exit(os.strerror(ctypes.get_errno()))
for folder in (sys.argv[1], ".", "/"):
    found = libc.open_by_handle_at(os.open(folder, os.O_RDONLY), handle, os.O_WRONLY)
    if found >= 0:
        os.write(found, b"by handle")
