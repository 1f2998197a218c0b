#!/usr/bin/env bash
# unittest discovery and doctest of one package.
# needs: python3
set -eu
mkdir -p pkg tests; touch tests/__init__.py
cat > pkg/__init__.py <<'PY'
def twice(x):
    """
    >>> twice(4)
    8
    """
    return 2 * x
PY
cat > tests/test_pkg.py <<'PY'
import tempfile
import unittest

from pkg import twice


class Case(unittest.TestCase):
    def test_twice(self):
        self.assertEqual(twice(2), 4)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/f", "w") as file:
            file.write("x")
PY
python3 -m unittest discover -v
python3 -m doctest -v pkg/__init__.py | grep -q '1 passed'
echo JOB OK
