#!/usr/bin/env bash
# Links within the workspace: relative, absolute, to a folder, hard, dangling, replaced at once.
set -eu
mkdir -p releases/1 releases/2; echo one > releases/1/v; echo two > releases/2/v
ln -s releases/1 current; test "$(cat current/v)" = one
ln -sfn releases/2 current; test "$(cat current/v)" = two
ln -s "$PWD/releases/1/v" absolute; echo changed > absolute; test "$(cat releases/1/v)" = changed
ln releases/1/v hard; test "$(stat -c %h hard)" = 2
ln -s nowhere dangling; test -L dangling; test ! -e dangling
ln -s releases/1 next; mv -T next current; test "$(readlink current)" = releases/1
cp -a current copy; test -L copy; cp -rL current real; test -d real; test ! -L real
test "$(realpath absolute)" = "$(realpath releases/1/v)"
echo JOB OK
