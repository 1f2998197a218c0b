#!/usr/bin/env bash
# Jobs in the background, wait, a pipe between them, a child that is ended.
set -eu
(sleep 0.3; echo late >> out) & (sleep 0.1; echo early >> out) & wait
test "$(tr '\n' ' ' < out)" = 'early late '
sleep 30 & child=$!
kill "$child"
code=0; wait "$child" || code=$?
test "$code" = 143
mkfifo pipe; (seq 5 > pipe &); test "$(wc -l < pipe)" = 5
set -m; sleep 30 & kill %%; wait || true; set +m
coproc BC { while read -r l; do echo "<$l>"; done; }
echo hi >&"${BC[1]}"; read -r answer <&"${BC[0]}"; test "$answer" = '<hi>'
exec {BC[1]}>&-
echo JOB OK
