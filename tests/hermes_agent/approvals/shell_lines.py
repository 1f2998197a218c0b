"""Random command lines that are mostly valid bash, with the word `canary` in every place a word can stand.

In some of them bash runs canary, in others it is a text, a comment, a pattern or an argument; which it is depends on
quoting, continuation and nesting, so the lines are a hard question to anything that reads shell.
"""

from __future__ import annotations

from random import Random

_TEXTS = (
    "canary", "a", "; canary", "$(canary)", "`canary`", "b c", "| canary", "& canary", "\n canary\n", "# canary", "$x",
    "${x}", '"', "'", "\\", "E", "*", "1", "canary;", '\\"; canary; echo "', "'; canary; '", "$((1))", "(canary)",
    "{canary,}", "!", ">f",
)  # fmt: skip
_COMMANDS = (
    *("echo",) * 5, "ls", "cat", "test", "printf", "true", "read", "[", "sh -c", "eval", "env", "xargs", "timeout 1",
    "command", "grep", "head", "canary", "$x", ":",
)  # fmt: skip


class Lines:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.one = self.random.choice

    def line(self) -> str:
        while "canary" not in (made := self.statement(0)):
            pass
        return made

    def quoted(self, text: str) -> str:
        return self.one(
            (
                "'" + text.replace("'", "") + "'",
                '"' + text.replace('"', "").replace("\\", "") + '"',
                '"' + text + '"',
                "$'" + text.replace("'", "\\'") + "'",
                "".join(char if char.isalnum() else "\\" + char for char in text),
                "'" + text + "'",
                text,
                '"' + "".join("\\" + char if char in '\\"$`' else char for char in text) + '"',
            )
        )

    def text(self) -> str:
        return self.quoted(self.one(_TEXTS))

    def word(self, depth: int) -> str:
        kind = self.random.randrange(14)
        if kind < 6:
            return self.text()
        if kind == 6:
            return self.text() + self.text()
        if kind < 11 and depth < 3:
            inner = self.statement(depth + 1)
            return (f"$({inner})", f'"$({inner})"', f"<({inner})", f"`{inner}`")[kind - 7]
        if kind < 12:
            text, plain = self.text(), self.one(_TEXTS)
            return self.one(
                ("$x", '"$x"', f"${{x:-{text}}}", f'"${{x:-{plain}}}"', f"${{x#{text}}}", "$1", f"${{x/a/{text}}}",
                 "${#x}", "$#", "$((1+1))", "$((x))", "$[1]")
            )  # fmt: skip
        if kind < 13:
            return self.one(("{a,b}", "{1..2}", "a*", "[ab]", "~", "-n", "--", "-", "#", "a#b", "x=1"))
        return self.one(("a", "b", "f"))

    def simple(self, depth: int) -> str:
        before = self.one((*("",) * 6, f"x={self.word(depth)} ", "LANG=C "))
        command = self.one(_COMMANDS)
        words = [command, *(self.word(depth) for _ in range(self.random.randrange(4)))]
        if command == "[":
            words.append("]")
        behind = self.one((*("",) * 6, " > f", " 2>&1", " < a", " >>f 2>/dev/null", f" <<< {self.word(depth)}", " &>f"))
        comment = self.one((*("",) * 8, " #" + self.one(_TEXTS).replace("\n", " ") + "\n", "#" + self.one(_TEXTS)))
        return before + " ".join(words) + behind + comment

    def document(self) -> str:
        mark = self.one(("E", "'E'", '"E"', "\\E", 'E"F"'))
        end = mark.replace("'", "").replace('"', "").replace("\\", "")
        command = self.one(("cat", "cat", "sh", "read x")) + self.one((" <<", " <<-")) + mark
        rest = self.one(("", " > f", " | cat", " && echo a", "; echo b", " # c"))
        body = "\n".join(self.one(_TEXTS) for _ in range(self.random.randrange(3)))
        return f"{command}{rest}\n{body}\n{self.one(('', chr(9), ' '))}{end}\n" + self.one(("", end + "\n"))

    def statement(self, depth: int) -> str:
        if depth > 4:
            return "echo a"
        kind = self.random.randrange(18)
        if kind < 7:
            return self.simple(depth)
        if kind == 7:
            return self.document()
        if kind == 8:
            return f"! {self.simple(depth)}"
        if kind == 9:
            return f"[[ {self.word(depth)}{self.one((' = ', ' -eq ', ' =~ ', ' && '))}{self.word(depth)} ]]"
        return self.around(self.statement(depth + 1), depth, kind - 10)

    def around(self, inner: str, depth: int, kind: int) -> str:
        """A statement with another inside it or behind it."""
        match kind:
            case 0:
                return self.simple(depth) + self.one((" && ", " || ", "; ", " & ", "\n", " | ", " |& ")) + inner
            case 1:
                return f"({inner})"
            case 2:
                return "{ " + inner + self.one(("; }", "\n}"))
            case 3:
                return f"for i in {self.word(depth)} {self.one(('', 'b'))}; do {inner}; done"
            case 4:
                other = self.one(("", f"; else {self.simple(depth)}"))
                return f"if {self.simple(depth)}; then {inner}{other}; fi"
            case 5:
                return f"case {self.word(depth)} in {self.one(('a', '*', 'b'))}) {inner};; esac"
            case 6:
                return f"x={self.word(depth)}{self.one(('; ', chr(10)))}{inner}"
            case _:
                return f"while read x; do {inner}; break; done < a"
