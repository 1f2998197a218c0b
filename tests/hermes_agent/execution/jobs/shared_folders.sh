#!/usr/bin/env bash
# The folders that all programs share, by their own names: /tmp, /var/tmp and /dev/shm.
set -eu
for folder in /tmp /var/tmp /dev/shm; do
  echo direct > "$folder/job-$$"
  grep -qx direct "$folder/job-$$"
  rm "$folder/job-$$"
done
echo JOB OK
