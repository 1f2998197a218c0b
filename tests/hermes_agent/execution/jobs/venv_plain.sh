#!/usr/bin/env bash
# A virtual environment without pip, activated and used.
# needs: python3
set -eu
python3 -m venv --without-pip env
. env/bin/activate
test "$(python -c 'import sys; print(sys.prefix)')" = "$PWD/env"
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo 'VALUE = 7' > "$site/mine.py"
python -c 'import mine; assert mine.VALUE == 7'
deactivate
echo JOB OK
