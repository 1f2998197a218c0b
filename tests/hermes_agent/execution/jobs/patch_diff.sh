#!/usr/bin/env bash
# A patch made by diff, applied, taken back, and one that does not fit.
# needs: diff patch
set -eu
mkdir old new; seq 20 > old/f; sed 's/^10$/ten/' old/f > new/f; echo more > new/g
code=0; diff -ruN old new > change.patch || code=$?
test "$code" = 1
cp -r old work; (cd work; patch -s -p1 < ../change.patch; diff -r . ../new; patch -s -R -p1 < ../change.patch)
cmp old/f work/f
seq 5 > work/f
if (cd work; patch -s -f -p1 < ../change.patch) > /dev/null 2>&1; then exit 1; fi
test -e work/f.rej
cmp old/f old/f; comm -13 <(sort old/f) <(sort new/f) | grep -qx ten
echo JOB OK
