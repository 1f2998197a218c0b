#!/usr/bin/env bash
# Big pipes and a sort that spills into the folder for temporary files.
set -eu
test "$(yes | head -n 3000000 | wc -l)" = 3000000
seq 1000000 | rev > numbers
sort -n -S 4M --parallel=2 numbers -o sorted
sort -n -c sorted; test "$(wc -l < sorted)" = 1000000
head -c 50000000 /dev/zero | tr '\0' 'x' | fold -w 100 | wc -l | grep -qx 499999
rm numbers sorted
echo JOB OK
