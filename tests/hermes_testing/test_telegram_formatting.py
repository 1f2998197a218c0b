"""HTML as Telegram parses it; most cases are those its own open-source parser is tested with."""

from __future__ import annotations

import pytest

from hermes_testing.telegram.answers import BotApiError
from hermes_testing.telegram.text import formatted, units

S = "\N{STADIUM} \N{STADIUM}"
"""Five UTF-16 units, nine bytes."""
_CANNOT = "Bad Request: can't parse entities: "


def shape(text: str, mode: str) -> tuple[str, list[tuple[object, ...]]]:
    result = formatted(text, mode)
    found = [(one.type, one.offset, one.length, *(value for _name, value in one.more)) for one in result.entities]
    return result.text, found


@pytest.mark.parametrize(
    ("text", "expected", "entities"),
    [
        ("&lt;&gt;&amp;&quot;&#39;&laquo;", '<>&"\'&laquo;', []),
        (f"{S}<i>{S}</i><b>{S}</b>", S * 3, [("italic", 5, 5), ("bold", 10, 5)]),
        ("<blockquote>a<b>b</b></blockquote>", "ab", [("blockquote", 0, 2), ("bold", 1, 1)]),
        ("<b></b>x", "x", []),
        ('<a href="telegram.org">x</a>', "x", [("text_link", 0, 1, "http://telegram.org/")]),
        ('<a href="nowhere">x</a>', "x", []),
        ('<pre><code class="language-py">1\n2</code></pre>', "1\n2", [("pre", 0, 3, "py")]),
        ("<pre><code>1</code></pre>", "1", [("pre", 0, 1), ("code", 0, 1)]),
        ("<u><s>x</s></u>", "x", [("underline", 0, 1), ("strikethrough", 0, 1)]),
        ("  <b> x </b>  ", "x", [("bold", 0, 1)]),
    ],
)  # fmt: skip
def test_html(text: str, expected: str, entities: list[tuple[object, ...]]) -> None:
    assert shape(text, "HTML") == (expected, entities)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{S}&lt;<abacaba", "Unclosed start tag at byte offset 13"),
        (f"{S}&lt;<abac aba>", 'Unsupported start tag "abac" at byte offset 13'),
        ("<script>x</script>", 'Unsupported start tag "script" at byte offset 0'),
        ("a < b", "Unclosed start tag at byte offset 2"),
        ("<b>a", "Can't find end tag corresponding to start tag \"b\""),
        (f"{S}&lt;</i>", "Unexpected end tag at byte offset 13"),
        (f"{S}&lt;<i>a</em   >", 'Unmatched end tag at byte offset 17, expected "</i>", found "</em>"'),
        ("<b><i>x</b></i>", 'Unmatched end tag at byte offset 7, expected "</i>", found "</b>"'),
    ],
)  # fmt: skip
def test_html_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(BotApiError) as caught:
        formatted(text, "html")
    assert caught.value.description == _CANNOT + words


@pytest.mark.parametrize("mode", ["MarkdownV2", "Markdown"])
def test_markdown_is_not_parsed_and_the_fake_says_so(mode: str) -> None:
    with pytest.raises(BotApiError, match="this fake parses HTML only"):
        formatted("*bold*", mode)


def test_telegram_marks_commands_mentions_and_links_on_its_own() -> None:
    text = "\N{PILE OF POO} /new@hermes_demo_bot @hermes_demo_bot https://example.org/a, me@example.org a/b `"
    assert [(one.type, one.offset, one.length) for one in formatted(text).entities] == [
        ("bot_command", 3, 20), ("mention", 24, 16), ("url", 41, 21), ("email", 64, 14),
    ]  # fmt: skip
    assert formatted("<code>/new</code>", "HTML").entities[0].type == "code"
    assert len(formatted("<code>/new</code>", "HTML").entities) == 1


def test_lengths_are_utf_16_units() -> None:
    assert (units("a"), units("京"), units("\N{PILE OF POO}"), units("")) == (1, 1, 2, 0)
