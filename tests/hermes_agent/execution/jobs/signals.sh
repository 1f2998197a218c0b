#!/usr/bin/env bash
# Traps, signals to one's own children and group, time-outs.
set -eu
code=0; timeout 1 sleep 5 || code=$?
test "$code" = 124
bash -c 'trap "echo got > t; exit 0" TERM; touch ready; while :; do sleep 0.05; done' & child=$!
until test -e ready; do sleep 0.05; done
kill -TERM "$child"; wait "$child"; grep -qx got t
bash -c 'trap "echo bye > e" EXIT; exit 3' || test $? = 3
grep -qx bye e
timeout -k 1 1 bash -c 'trap "" TERM; sleep 9' || test $? = 137
kill -0 $$
echo JOB OK
