#!/usr/bin/env bash
# A virtual environment with pip from ensurepip, and a local package installed without the network.
# needs: python3
set -eu
python3 -m venv env
env/bin/python -m pip --version
mkdir -p wheel/mine wheel/mine-1.0.dist-info
echo 'VALUE = 7' > wheel/mine/__init__.py
printf 'Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n' > wheel/mine-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > wheel/mine-1.0.dist-info/WHEEL
printf 'mine/__init__.py,,\nmine-1.0.dist-info/METADATA,,\nmine-1.0.dist-info/WHEEL,,\nmine-1.0.dist-info/RECORD,,\n' > wheel/mine-1.0.dist-info/RECORD
(cd wheel; python3 -m zipfile -c ../mine-1.0-py3-none-any.whl mine mine-1.0.dist-info)
env/bin/python -m pip install -q --no-index --disable-pip-version-check --no-cache-dir ./mine-1.0-py3-none-any.whl
env/bin/python -c 'import mine; assert mine.VALUE == 7'
env/bin/python -m pip list --disable-pip-version-check | grep -q mine
echo JOB OK
