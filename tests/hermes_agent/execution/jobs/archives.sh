#!/usr/bin/env bash
# Round trips through tar with four compressors, and zip.
# needs: tar gzip
set -eu
mkdir -p in/sub; printf 'hello\n' > in/a; head -c 300000 /dev/urandom > in/sub/b; ln -s a in/link; chmod 750 in/sub
tar -cf plain.tar in; tar -tf plain.tar | grep -qx in/link
for pair in 'z gzip' 'j bzip2' 'J xz'; do
  set -- $pair
  command -v "$2" > /dev/null || continue
  tar "-c${1}f" "x.$2" in; mkdir "out.$2"; tar "-x${1}f" "x.$2" -C "out.$2"; diff -r in "out.$2/in"
done
if command -v zstd > /dev/null; then zstd -q plain.tar -o plain.zst; zstd -dqc plain.zst | cmp - plain.tar; fi
gzip -k plain.tar; gunzip -t plain.tar.gz; zcat plain.tar.gz | cmp - plain.tar
tar cf - in | (mkdir copy; cd copy; tar xf -); diff -r in copy/in
if command -v zip > /dev/null && command -v unzip > /dev/null; then
  zip -qr in.zip in; unzip -q in.zip -d unzipped; cmp in/sub/b unzipped/in/sub/b
fi
test "$(stat -c %a out.gzip/in/sub)" = 750
echo JOB OK
