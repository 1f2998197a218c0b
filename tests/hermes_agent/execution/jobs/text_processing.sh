#!/usr/bin/env bash
# find, xargs, grep, sed, awk, sort and friends over a small tree.
# needs: awk column
set -eu
mkdir -p src/a src/b
for i in $(seq 200); do echo "item $i colour $((i % 7))" > "src/$([ $((i % 2)) = 0 ] && echo a || echo b)/f$i.txt"; done
test "$(find src -name '*.txt' | wc -l)" = 200
find src -name '*.txt' -print0 | xargs -0 -n 20 -P 2 sed -i 's/colour/color/'
if grep -rq colour src; then exit 1; fi
test "$(cat src/*/*.txt | awk '{ n[$4]++ } END { print length(n) }')" = 7
find src -name 'f1?.txt' -exec cat {} + | sort -k2,2n | head -1 | grep -q 'item 10 '
cat src/*/*.txt | cut -d' ' -f4 | sort | uniq -c | sort -rn | head -1 | grep -q 29
paste -d, <(seq 3) <(seq 4 6) | tr ',' ' ' | column -t > table; test "$(wc -l < table)" = 3
printf 'b 2\na 1\n' | sort | join - <(printf 'a x\nb y\n') | grep -qx 'a 1 x'
find src -name '*.txt' -delete; test -z "$(find src -type f)"
seq 1000 | split -l 250 - part_
ls part_* | wc -l | grep -qx 4
echo JOB OK
