#!/usr/bin/env bash
# mktemp in every form, here-documents, here-strings, traps that tidy up.
set -eu
tmp=$(mktemp); dir=$(mktemp -d); inside=$(mktemp -p . part.XXXXXX)
trap 'rm -f "$tmp"; rmdir "$dir"' EXIT
cat > "$tmp" <<EOF
today is $((1 + 1))
EOF
grep -qx 'today is 2' "$tmp"
cat <<'EOF' > raw.txt
$not expanded `at all`
EOF
grep -qF '$not' raw.txt
read -r a b <<< 'x y'; test "$b" = y
test "$(wc -c < <(printf abc))" = 3
echo data | tee "$dir/f" > /dev/null; rm "$dir/f" "$inside"
echo JOB OK
