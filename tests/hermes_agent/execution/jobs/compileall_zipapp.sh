#!/usr/bin/env bash
# Byte code, a zip application that starts itself, the profiler, the tracer.
# needs: python3
set -eu
mkdir app; echo 'print("zip app")' > app/__main__.py; echo 'X = 1' > app/other.py
python3 -m compileall -q app; ls app/__pycache__/other.*.pyc
python3 -m zipapp app -o app.pyz -p '/usr/bin/env python3'; test "$(./app.pyz)" = 'zip app'
python3 -m zipfile -l app.pyz | grep -q __main__.py
python3 -m cProfile -o profile app/__main__.py; python3 -c 'import pstats; pstats.Stats("profile")'
python3 -m trace --count -C counts app/__main__.py > trace.log; ls counts
echo JOB OK
