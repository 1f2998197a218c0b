#!/usr/bin/env bash
# A build that writes 2 GB of real bytes into the workspace, as eight objects and one library.
# needs: python3
set -eu
python3 - <<'PY'
import os
block = os.urandom(1 << 20)
for n in range(8):
    with open(f"object{n}.o", "wb") as file:
        for _ in range(128):
            file.write(block)
PY
cat object?.o > library.a
test "$(stat -c %s library.a)" = $((1 << 30))
test "$(du -sm . | cut -f1)" -ge 2047
cmp -n 1048576 object0.o library.a
rm object?.o library.a
echo JOB OK
