#!/usr/bin/env bash
# A report from a table: CSV to figures, Markdown to HTML, a spreadsheet file (a zip of XML), a checksum.
# needs: python3
set -eu
printf 'month,amount\njan,10.5\nfeb,20\nmar,30.25\n' > sales.csv
total=$(awk -F, 'NR > 1 { s += $2 } END { printf "%.2f", s }' sales.csv); test "$total" = 60.75
printf '# Report\n\nTotal: %s\n' "$total" > report.md
sed -E 's|^# (.*)|<h1>\1</h1>|; s|^([A-Z].*)|<p>\1</p>|' report.md > report.html; grep -q '<h1>Report</h1>' report.html
python3 - <<'PY'
import csv
import zipfile
from xml.etree import ElementTree
root = ElementTree.Element("sheet")
for row in csv.reader(open("sales.csv")):
    line = ElementTree.SubElement(root, "row")
    for cell in row:
        ElementTree.SubElement(line, "c").text = cell
with zipfile.ZipFile("sales.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
    book.writestr("sheet.xml", ElementTree.tostring(root))
PY
python3 -m zipfile -t sales.xlsx
sha256sum sales.* report.* > SUMS; sha256sum -c --quiet SUMS
iconv -f UTF-8 -t ISO-8859-1 report.md > latin.md; base64 latin.md | base64 -d | cmp - latin.md
echo JOB OK
