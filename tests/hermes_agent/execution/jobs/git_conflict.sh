#!/usr/bin/env bash
# A merge conflict that is resolved, a stash, a second worktree, a cherry-pick, a revert and a bisect.
# needs: git
set -eu
git init -q -b main repo; cd repo
git config user.name Ada; git config user.email ada@example.com
printf 'line\n' > f; git add f; git commit -q -m base
git switch -q -c left; printf 'left\n' > f; git commit -q -am left
git switch -q main; printf 'right\n' > f; git commit -q -am right
if git merge left > merge.log 2>&1; then echo 'no conflict?'; exit 1; fi
rm merge.log
grep -q '<<<<<<<' f
printf 'left and right\n' > f; git add f; git commit -q -m 'Merge left'
test "$(git rev-list --parents -n 1 HEAD | wc -w)" = 3
printf 'wip\n' >> f; git stash -q; git diff --quiet; git stash pop -q; grep -q wip f; git checkout -q -- f
git worktree add -q second -b second; (cd second; printf 's\n' > s; git add s; git commit -q -m s)
git cherry-pick second > pick.log; rm pick.log; test -f s
git worktree remove second
git revert --no-edit HEAD > revert.log; rm revert.log; test ! -e s
good=$(git rev-parse HEAD)
for i in 1 2 3 4 5; do echo "$i" > n; git add n; git commit -q -m "n $i"; done
git bisect start HEAD "$good" > /dev/null
git bisect run sh -c '! test -f n || test "$(cat n)" -lt 3' > bisect.log 2>&1; grep -q "is the first bad commit" bisect.log; rm bisect.log
git bisect reset > /dev/null 2>&1
echo JOB OK
