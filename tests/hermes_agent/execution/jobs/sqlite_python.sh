#!/usr/bin/env bash
# SQLite from Python: WAL, two connections, a backup, full-text search.
# needs: python3
set -eu
python3 - <<'PY'
import sqlite3
a = sqlite3.connect("app.db"); b = sqlite3.connect("app.db", timeout=5)
assert a.execute("pragma journal_mode=wal").fetchone() == ("wal",)
a.execute("create table t(x integer primary key, y text)")
with a:
    a.executemany("insert into t(y) values(?)", [(f"row {n}",) for n in range(1000)])
assert b.execute("select count(*) from t").fetchone() == (1000,)
with b:
    b.execute("delete from t where x <= 500")
assert a.execute("select count(*) from t").fetchone() == (500,)
a.execute("create virtual table f using fts5(body)")
a.execute("insert into f values('a quick fox')"); a.commit()
assert a.execute("select count(*) from f where f match 'quick'").fetchone() == (1,)
copy = sqlite3.connect("copy.db"); a.backup(copy)
assert copy.execute("pragma integrity_check").fetchone() == ("ok",)
a.execute("vacuum"); a.close(); b.close(); copy.close()
PY
test -s copy.db
echo JOB OK
