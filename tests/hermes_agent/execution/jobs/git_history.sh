#!/usr/bin/env bash
# A repository from nothing: commits, a branch, a rebase, a tag.
# needs: git
set -eu
git init -q -b main repo; cd repo
git config user.name Ada; git config user.email ada@example.com
printf 'one\n' > a.txt; git add a.txt; git commit -q -m 'First'
git checkout -q -b topic; printf 'topic\n' > t.txt; git add -A; git commit -q -m 'Topic'
git checkout -q main; printf 'two\n' >> a.txt; git commit -q -am 'Second'
git rebase -q main topic
test "$(git rev-list --count topic)" = 3
printf 'fix\n' >> t.txt; git commit -q -a --fixup HEAD
GIT_SEQUENCE_EDITOR=: git rebase -q -i --autosquash main
test "$(git rev-list --count topic)" = 3
git checkout -q main; git merge -q --ff-only topic
git tag -a v1 -m 'Release'; git describe | grep -qx v1
git log --oneline --graph | cat
git gc -q; git fsck --no-dangling
git archive --format=tar HEAD | tar -tf - | grep -qx t.txt
echo JOB OK
