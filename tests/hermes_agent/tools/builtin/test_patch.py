"""Changing parts of files: exact, forgiving, never guessing, all or nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..conftest import Bench

CODE = "def a():\n    return 1\n\n\ndef b():\n    return 1\n"


def test_a_text_that_is_there_once_is_replaced(bench: Bench) -> None:
    file = bench.write("m.py", CODE)
    result = bench.call("patch", path="m.py", old_string="def a():\n    return 1", new_string="def a():\n    return 2")
    assert not result.is_error and "+    return 2" in result.content
    assert file.read_text() == CODE.replace("1", "2", 1)


def test_a_text_that_is_there_twice_is_refused_with_its_lines_or_replaced_everywhere(bench: Bench) -> None:
    file = bench.write("m.py", CODE)
    result = bench.call("patch", path="m.py", old_string="return 1", new_string="return 2")
    assert result.is_error and "lines 2, 6" in result.content
    assert file.read_text() == CODE
    assert not bench.call("patch", path="m.py", old_string="return 1", new_string="return 2", replace_all=True).is_error
    assert file.read_text() == CODE.replace("1", "2")


@pytest.mark.parametrize(
    ("there", "old", "new", "after"),
    [
        ("x = 1   \ny = 2\n", "x = 1\ny = 2", "x = 3\ny = 4", "x = 3\ny = 4\n"),
        (
            "class C:\n        x = 1\n        y = 2\n",
            "x = 1\ny = 2",
            "x = 3\ny = 4",
            "class C:\n        x = 3\n        y = 4\n",
        ),
        ("say “hello” – now\n", 'say "hello" - now', "say bye", "say bye\n"),
    ],
)
def test_small_differences_are_forgiven_and_said(bench: Bench, there: str, old: str, new: str, after: str) -> None:
    file = bench.write("f", there)
    result = bench.call("patch", path="f", old_string=old, new_string=new)
    assert not result.is_error and "found but for" in result.content
    assert file.read_text() == after


def test_a_text_that_is_not_there_names_the_nearest_line(bench: Bench) -> None:
    bench.write("m.py", CODE)
    result = bench.call("patch", path="m.py", old_string="def bb():", new_string="x")
    assert result.is_error and "nearest line is 5" in result.content


def test_windows_lines_and_a_byte_order_mark_stay(bench: Bench) -> None:
    file = bench.write("w.txt", b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert not bench.call("patch", path="w.txt", old_string="one\ntwo", new_string="1\n2").is_error
    assert file.read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n"


UNIFIED = """diff --git a/m.py b/m.py
--- a/m.py
+++ b/m.py
@@ -4,3 +4,4 @@

 def b():
-    return 1
+    # twice
+    return 2
--- /dev/null
+++ b/new/n.txt
@@ -0,0 +1,2 @@
+first
+second
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
"""
V4A = """*** Begin Patch
*** Update File: m.py
@@ def b():
-    return 1
+    # twice
+    return 2
*** Add File: new/n.txt
+first
+second

*** Delete File: old.txt
*** End Patch"""


@pytest.mark.parametrize("text", [UNIFIED, V4A, f"```diff\n{UNIFIED}```"])
def test_a_patch_over_several_files(bench: Bench, text: str) -> None:
    code, old = bench.write("m.py", CODE), bench.write("old.txt", "gone\n")
    result = bench.call("patch", mode="patch", patch=text)
    assert not result.is_error, result.content
    assert code.read_text() == "def a():\n    return 1\n\n\ndef b():\n    # twice\n    return 2\n"
    assert (bench.workdir / "new/n.txt").read_text() == "first\nsecond\n"
    assert not old.exists()
    assert {Path(action.text).name for action in bench.gate.asked} == {"m.py", "n.txt", "old.txt"}


def test_hunks_with_wrong_line_numbers_go_to_the_nearest_place(bench: Bench) -> None:
    file = bench.write("n", "".join(f"{n % 10}\n" for n in range(40)))
    text = "--- n\n+++ n\n@@ -2,1 +2,3 @@\n 1\n+new\n+new\n@@ -23,2 +25,2 @@\n 3\n-4\n+four\n"
    assert not bench.call("patch", patch=text).is_error
    lines = file.read_text().splitlines()
    assert lines[1:4] == ["1", "new", "new"] and lines[26] == "four" and lines.count("four") == 1


def test_a_file_can_be_moved_with_its_change(bench: Bench) -> None:
    old = bench.write("m.py", CODE)
    text = "*** Begin Patch\n*** Update File: m.py\n*** Move to: lib/m.py\n@@ def a():\n-    return 1\n+    return 7\n"
    assert not bench.call("patch", patch=text).is_error
    assert not old.exists() and (bench.workdir / "lib/m.py").read_text() == CODE.replace("1", "7", 1)


def test_a_patch_that_fits_only_in_part_changes_nothing(bench: Bench) -> None:
    first, second = bench.write("a", "1\n"), bench.write("b", "1\n")
    text = "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n--- b\n+++ b\n@@ -1 +1 @@\n-not there\n+2\n"
    result = bench.call("patch", patch=text)
    assert result.is_error and "Nothing was changed" in result.content
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")
    assert bench.gate.asked == []


def test_leave_for_one_file_of_two_is_leave_for_none(bench: Bench) -> None:
    first, second = bench.write("a", "1\n"), bench.write("b", "1\n")
    bench.gate.before_answer = lambda: setattr(bench.gate, "refuses", ("write",) if bench.gate.asked[1:] else ())
    text = "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n--- b\n+++ b\n@@ -1 +1 @@\n-1\n+2\n"
    assert bench.call("patch", patch=text).is_error
    assert (first.read_text(), second.read_text()) == ("1\n", "1\n")


def test_a_file_somebody_changed_meanwhile_is_left_alone(bench: Bench) -> None:
    file = bench.write("a", "1\n")

    def somebody() -> None:
        file.write_text("theirs\n")

    bench.gate.before_answer = somebody
    result = bench.call("patch", path="a", old_string="1", new_string="2")
    assert result.is_error and "somebody else" in result.content
    assert file.read_text() == "theirs\n"


def test_a_write_that_fails_in_the_middle_is_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, folder = bench.write("a", "1\n"), bench.workdir / "d"
    folder.mkdir()
    bench.write("d/b", "1\n")
    real = os.replace

    def full_disk(source: str, target: str, **folders: int) -> None:
        if target == "b":
            raise OSError(28, "No space left on device")
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", full_disk)
    text = "--- a\n+++ a\n@@ -1 +1 @@\n-1\n+2\n--- d/b\n+++ d/b\n@@ -1 +1 @@\n-1\n+2\n"
    result = bench.call("patch", patch=text)
    assert result.is_error and "No space left" in result.content and "nothing was changed" in result.content
    assert first.read_text() == "1\n" and (folder / "b").read_text() == "1\n"
    assert list(bench.workdir.rglob("*.tmp")) == []


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"path": "a", "old_string": "", "new_string": "x"},
        {"path": "a", "old_string": "1", "new_string": "1"},
        {"patch": "just words"},
        {"patch": "*** Begin Patch\n*** Update File: a\n*** End Patch"},
        {"patch": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"},
        {"mode": "patch"},
        {"path": "bin", "old_string": "x", "new_string": "y"},
    ],
)
def test_a_call_that_means_nothing_is_answered_in_words(bench: Bench, args: dict[str, str]) -> None:
    file = bench.write("a", "1\n")
    bench.write("bin", b"\xff\xfe\0x")
    result = bench.call("patch", **args)
    assert result.is_error and "Nothing was changed" in result.content
    assert file.read_text() == "1\n"
