#!/usr/bin/env bash
# jq over a file of records, to CSV and back.
# needs: jq
set -eu
jq -n '[range(10) | {id: ., even: (. % 2 == 0)}]' > r.json
test "$(jq '[.[] | select(.even)] | length' r.json)" = 5
jq -r '.[] | [.id, .even] | @csv' r.json > r.csv; test "$(wc -l < r.csv)" = 10
jq -s -R 'split("\n") | map(select(length > 0)) | length' r.csv | grep -qx 10
echo JOB OK
