#!/usr/bin/env bash
# perl: one-liners, in-place edits, a fork with a pipe.
# needs: perl
set -eu
printf 'a 1\nb 2\n' > t
test "$(perl -lane '$s += $F[1]; END { print $s }' t)" = 3
perl -pi.bak -e 's/^a/z/' t; grep -qx 'z 1' t; test -e t.bak
test "$(perl -e 'open my $p, "-|", "seq", 3 or die; print scalar(() = <$p>), "\n"')" = 3
perl -MFile::Temp=tempfile -e 'my ($h, $n) = tempfile(UNLINK => 1); print $h "x"; close $h; die unless -s $n'
perl -e 'my $p = fork; if (!$p) { exit 7 } waitpid $p, 0; die unless ($? >> 8) == 7'
echo JOB OK
