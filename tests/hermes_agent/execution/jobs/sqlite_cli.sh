#!/usr/bin/env bash
# The sqlite3 shell: import, query, dump, restore.
# needs: sqlite3
set -eu
printf 'name,city\nada,london\nbob,paris\ncy,london\n' > people.csv
sqlite3 p.db ".mode csv" ".import people.csv people" "select city, count(*) from people group by city order by 1;" > out.csv
grep -q '^london,2' out.csv
sqlite3 p.db .dump > dump.sql; sqlite3 q.db < dump.sql
sqlite3 q.db <<'SQL' | grep -qx 3
select count(*) from people;
SQL
echo JOB OK
