#!/usr/bin/env bash
# What the shell says of its limits, and names in other scripts.
# needs: free
set -eu
ulimit -a | grep -q 'open files'
ulimit -n; nproc; id; uname -s; df . > /dev/null; free -m > /dev/null
(ulimit -t 5; ulimit -n 64; true)
export LC_ALL=C.UTF-8
mkdir 'Größe und Maß'; echo ja > 'Größe und Maß/naïve café 日本語.txt'; touch $'tab\there' $'new\nline' ./-dash '🙂'
test "$(find . -name '*日本*' | wc -l)" = 1
find . -type f -print0 | xargs -0 ls -d -- > list
cat -- *'/naïve'* | grep -qx ja
test "$(printf 'äöü' | wc -m)" = 3
rm -- -dash $'new\nline'
python3 -c "import os; assert '🙂' in os.listdir('.')"
echo JOB OK
