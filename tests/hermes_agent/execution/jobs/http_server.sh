#!/usr/bin/env bash
# python -m http.server in the background, read back with urllib, then ended.
# needs: python3
set -eu
echo content > page.txt
python3 -u -m http.server 0 --bind 127.0.0.1 > server.log 2>&1 &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT
for _ in $(seq 100); do if grep -q port server.log; then break; fi; sleep 0.1; done
port=$(sed -n 's/.*port \([0-9]*\).*/\1/p' server.log)
test "$(python3 -c "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:$port/page.txt').read().decode().strip())")" = content
if command -v curl > /dev/null; then test "$(curl -s --noproxy '*' "http://127.0.0.1:$port/page.txt")" = content; fi
echo JOB OK
