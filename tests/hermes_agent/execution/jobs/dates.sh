#!/usr/bin/env bash
# Date arithmetic as a timetable needs it: month ends, weekdays, time zones, durations.
# needs: date
set -eu
export LC_ALL=C TZ=UTC
test "$(date -d '2024-02-28 + 1 day' +%F)" = 2024-02-29
test "$(date -d '2026-03-01 - 1 day' +%F)" = 2026-02-28
test "$(date -d @1700000000 +%FT%TZ)" = 2023-11-14T22:13:20Z
test "$(TZ=Europe/Berlin date -d '2026-07-01 12:00 UTC' +%H:%M)" = 14:00
day=2026-01-30; for _ in 1 2 3; do day=$(date -d "$day + 1 week" +%F); done; test "$day" = 2026-02-20
test $((($(date -d 2026-12-31 +%s) - $(date -d 2026-01-01 +%s)) / 86400)) = 364
touch -d '3 days ago' old; find . -name old -mtime +2 | grep -q old
echo JOB OK
