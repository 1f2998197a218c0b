"""The program that makes readable text of a page. Its text is passed to Python; it imports only the standard library.

It runs in a confined child process: pages are written by strangers. It takes one question as JSON, reads the page from
the file named there, and prints JSON: `title`, `text`, and `error` if the page cannot be read. HTML becomes plain text
in the manner of Markdown: what a person would not see is dropped (scripts, comments, hidden elements), and so are
navigation and other frames around the content, unless little else would be left. PDF needs pypdf, whose folder the
question names.
"""

# Without pathlib, which alone would double the time this program needs to start.
# ruff: noqa: PTH123

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from urllib.parse import urljoin

_DEEPEST, _MOST_OPEN, _MOST_NODES = 200, 10_000, 200_000


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _words("area base br col embed hr img input link meta param source track wbr")
_UNSEEN = _words(
    "script style template noscript svg math iframe object canvas select textarea button audio video map datalist"
    " noframes frameset applet"
)
_FRAME = _words("nav footer aside header form menu dialog")
_FRAME_ROLES = _words("navigation banner contentinfo search complementary menu menubar dialog alertdialog")
_FRAME_NAMES = re.compile(
    r"(?:^|[\s_-])(?:cookies?|consent|sidebar|newsletter|share|sharing|social|advert\w*|ads?|promo|related|breadcrumbs?"
    r"|navbar|nav|menu|footer|masthead|popup|modal|subscribe)(?:$|[\s_-])",
    re.IGNORECASE,
)
_BLOCKS = _words(
    "p div section article main header footer aside nav form fieldset ul ol dl dt dd li table tr figure figcaption"
    " blockquote pre h1 h2 h3 h4 h5 h6 hr address details summary body html menu dialog center caption"
)
_ENDS = {
    "li": {"li", "p"}, "p": {"p"}, "tr": {"tr", "td", "th", "p"}, "td": {"td", "th", "p"}, "th": {"td", "th", "p"},
    "dt": {"dt", "dd", "p"}, "dd": {"dt", "dd", "p"}, **{f"h{level}": {"p"} for level in range(1, 7)},
    **{tag: {"p"} for tag in ("ul", "ol", "dl", "div", "table", "blockquote", "pre", "section", "article")},
}  # fmt: skip
"""An element, and those that it ends if they are open."""
_HIDDEN_STYLE = re.compile(
    r"display:none|visibility:(?:hidden|collapse)|opacity:0?\.?0*(?:;|$)|font-size:(?:0|1px|\.\d|0\.\d)"
    r"|(?:left|top|right|text-indent|margin-left|margin-top):-\d{3,}|(?:^|;)(?:max-)?(?:height|width):[01](?:px)?(?:;|$)"
    r"|color:transparent|clip:rect\(0|clip-path:inset\((?:50|100)%"
)
_COLOURS = re.compile(r"(?:^|;)(?P<which>color|background(?:-color)?):(?P<colour>[^;]+)")
_HIDDEN_NAMES = re.compile(r"(?:^|\s)(?:sr-only|visually-?hidden|screen-reader-text|hidden|d-none|invisible)(?:$|\s)")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]|[\u200c\u200d](?=[\u200c\u200d])|[\ufe00-\ufe0f](?=[\ufe00-\ufe0f])"
)
# As browsers read these names (encoding.spec.whatwg.org).
_CHARSETS = {
    "iso-8859-1": "cp1252", "latin1": "cp1252", "ascii": "cp1252", "us-ascii": "cp1252", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "shift-jis": "cp932", "euc-kr": "cp949", "utf-7": "cp1252",
}  # fmt: skip
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)


def is_hidden(own: dict[str, str]) -> bool:
    """Whether these attributes hide an element from a person."""
    if not own:
        return False
    if "hidden" in own or _HIDDEN_NAMES.search(own.get("class", "")):
        return True
    if "style" not in own:
        return False
    style = re.sub(r"\s|!important", "", own["style"].lower())
    colours = {found["which"][:5]: found["colour"] for found in _COLOURS.finditer(style)}
    return bool(_HIDDEN_STYLE.search(style)) or (len(colours) == 2 and len(set(colours.values())) == 1)


class Node:
    __slots__ = ("attributes", "children", "hidden", "tag")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Node | str] = []
        self.hidden = tag in _UNSEEN or (tag == "dialog" and "open" not in attributes) or is_hidden(attributes)


class PageFull(Exception):
    """The page has more elements than are read."""


class Tree(HTMLParser):
    """Builds a tree whose depth and size are bounded: text that lies deeper hangs on the deepest node."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Node("root", {})
        self.stack, self.count = [self.root], 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1
        if self.count > _MOST_NODES or len(self.stack) > _MOST_OPEN:
            raise PageFull
        if tag in _ENDS:
            self.close_before(_ENDS[tag])
        node = Node(tag, {name: value or "" for name, value in attrs if value is None or len(value) < 4_096})
        node.hidden |= self.stack[-1].hidden
        self.add(node)
        if tag not in _VOID:
            self.stack.append(node)

    def add(self, child: Node | str) -> None:
        self.stack[min(len(self.stack), _DEEPEST) - 1].children.append(child)

    def close_before(self, tags: set[str]) -> None:
        """Close the elements that a new one closes implicitly: a row ends the row before it, and its cells."""
        place = len(self.stack)
        while place > 1 and (self.stack[place - 1].tag in tags or self.stack[place - 1].tag not in _BLOCKS):
            place -= 1
        ended = next((at for at in range(place, len(self.stack)) if self.stack[at].tag in tags), None)
        if ended is not None:
            del self.stack[ended:]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID and self.stack[-1].tag == tag:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        for place in range(len(self.stack) - 1, 0, -1):
            if self.stack[place].tag == tag:
                del self.stack[place:]
                return

    def handle_data(self, data: str) -> None:
        if not self.stack[-1].hidden:
            self.add(data)


def is_frame(node: Node) -> bool:
    """Whether it looks like something around the content."""
    if node.tag in _FRAME or node.attributes.get("role", "").lower() in _FRAME_ROLES:
        return True
    names = f"{node.attributes.get('class', '')} {node.attributes.get('id', '')}"
    return node.tag in ("div", "section", "ul", "span", "p") and bool(_FRAME_NAMES.search(names))


class PageWriter:
    """Writes a tree as text: blocks with empty lines between them, links with their addresses."""

    def __init__(self, base: str, *, frames: bool) -> None:
        self.base, self.frames = base, frames
        self.lines: list[str] = []
        self.line: list[str] = []
        self.prefix = ""

    def text(self) -> str:
        self.end()
        text = "\n".join(self.lines)
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def end(self, gap: bool = False) -> None:
        line = " ".join("".join(self.line).split())
        self.line = []
        if line:
            self.lines.append(self.prefix + line)
        if gap and self.lines and self.lines[-1]:
            self.lines.append("")

    def inside(self, node: Node) -> str:
        """What the node says in one line."""
        inner = PageWriter(self.base, frames=self.frames)
        inner.children(node)
        return " ".join(inner.text().split())

    def children(self, node: Node) -> None:
        for child in node.children:
            if isinstance(child, str):
                self.line.append(child)
            elif not child.hidden and (self.frames or not is_frame(child)):
                self.node(child)

    def node(self, node: Node) -> None:
        tag = node.tag
        if tag == "br":
            self.end()
        elif tag == "hr":
            self.end(gap=True)
        elif tag == "img":
            alt = " ".join(node.attributes.get("alt", "").split())[:200]
            self.line.append(f" [image: {alt}] " if alt else "")
        elif tag == "a":
            self.link(node)
        elif tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.end(gap=True)
            if said := self.inside(node):
                self.lines += [f"{'#' * int(tag[1])} {said}", ""]
        elif tag == "pre":
            self.end(gap=True)
            self.lines += ["```", *plain(node).strip("\n").splitlines(), "```", ""]
        elif tag == "tr":
            self.end()
            cells = [self.inside(one) for one in node.children if isinstance(one, Node) and one.tag in ("td", "th")]
            self.line.append(" | ".join(cells) if any(cells) else "")
            self.end()
        elif tag in ("li", "dd"):
            self.indented(node, "- " if tag == "li" else "  ")
        elif tag == "blockquote":
            self.indented(node, "> ")
        elif tag == "code":
            self.line.append(f"`{self.inside(node)}`")
        elif tag in _BLOCKS:
            self.end(gap=tag not in ("dt", "summary"))
            self.children(node)
            self.end(gap=tag not in ("dt", "summary"))
        else:
            self.children(node)

    def indented(self, node: Node, mark: str) -> None:
        self.end(gap=mark == "> ")
        inner = PageWriter(self.base, frames=self.frames)
        inner.children(node)
        text = re.sub(r"\n+", "\n", inner.text())
        deeper = mark if mark == "> " else "  "
        for number, line in enumerate(text.splitlines()):
            self.lines.append(self.prefix + (mark if number == 0 else deeper) + line)
        if mark == "> ":
            self.lines.append("")

    def link(self, node: Node) -> None:
        said, href = self.inside(node), node.attributes.get("href", "").strip()
        address = joined(self.base, href) if href and not href.startswith("#") else ""
        if said and address.startswith(("http://", "https://")) and len(address) <= 2_000:
            address = "".join(character if character > " " else "%20" for character in address)
            said = f"[{said}]({address.replace(')', '%29')})"
        self.line.append(said)


def plain(node: Node) -> str:
    parts: list[str] = []
    for child in node.children:
        if isinstance(child, str):
            parts.append(child)
        elif child.tag == "br":
            parts.append("\n")
        elif not child.hidden:
            parts.append(plain(child))
    return "".join(parts)


def found(node: Node, tags: tuple[str, ...]) -> list[Node]:
    """The nodes of these tags that are not inside another one, in order."""
    hits: list[Node] = []
    for child in node.children:
        if isinstance(child, Node) and not child.hidden:
            hits += [child] if child.tag in tags else found(child, tags)
    return hits


def html(text: str, base: str) -> tuple[str, str, bool]:
    """The title, the readable text, and whether its end is missing."""
    tree, cut = Tree(), False
    try:
        tree.feed(text)
        tree.close()
    except PageFull:
        cut = True
    titles = found(tree.root, ("title",))
    for head in found(tree.root, ("base",))[:1]:
        base = joined(base, head.attributes.get("href", "")) or base
    title = " ".join(plain(titles[0]).split())[:300] if titles else ""
    body = next(iter(found(tree.root, ("body",))), tree.root)
    for node in titles:
        node.children = []
    whole = rendered(body, base, frames=True)
    for tags in (("main", "article"), ("root", "body")):
        chosen = found(body, tags) if tags[0] == "main" else [body]
        text = "\n\n".join(one for one in (rendered(node, base, frames=False) for node in chosen) if one)
        if len(text) >= max(200, len(whole) // 4):
            return title, text, cut
    return title, whole, cut


def joined(base: str, href: str) -> str:
    """The whole address; empty if it is none."""
    try:
        return urljoin(base, href)
    except ValueError:
        return ""


def rendered(node: Node, base: str, *, frames: bool) -> str:
    writer = PageWriter(base, frames=frames)
    writer.children(node)
    return writer.text()


def decoded(data: bytes, charset: str) -> str:
    """The text, decoded by its byte order mark, the server's or the page's charset, UTF-8, or else Windows-1252."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(name, "replace")
    named = _META.search(data[:4_096])
    for name in (charset.lower(), named[1].decode().lower() if named else ""):
        name = _CHARSETS.get(name, name)
        if name and not name.startswith(("utf-16", "utf-32")):
            try:
                return data.decode(name, "replace")
            except LookupError:
                continue
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        broken = error.start < len(data) - 4  # else a page that was cut within a character
        return data.decode("cp1252" if broken else "utf-8", "replace")


def pdf(file: str, folder: str, most: int) -> tuple[str, str]:
    sys.path.insert(0, folder)
    import logging

    import pypdf

    logging.disable(logging.CRITICAL)
    reader = pypdf.PdfReader(file)
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it needs a password")
    title = str(reader.metadata.title or "") if reader.metadata else ""
    parts: list[str] = []
    for number, page in enumerate(reader.pages, start=1):
        said = page.extract_text().strip()
        parts.append(f"[page {number}]\n{said}" if said else f"[page {number}: no text]")
        if sum(map(len, parts)) > most:
            break
    return " ".join(title.split())[:300], "\n\n".join(parts)


def main(question: str) -> int:
    asked = json.loads(question)
    try:
        import resource

        for which, value in ((resource.RLIMIT_AS, asked["memory"]), (resource.RLIMIT_CPU, asked["seconds"])):
            resource.setrlimit(which, (value, value))
    except (ImportError, ValueError, OSError):
        pass  # the executor's own bounds hold
    sys.setrecursionlimit(20_000)
    title, cut = "", False
    try:
        if asked["kind"] == "pdf":
            title, text = pdf(asked["file"], asked["pypdf"], asked["most"])
        else:
            with open(asked["file"], "rb") as file:
                text = decoded(file.read(), asked["charset"])
            if asked["kind"] == "html":
                title, text, cut = html(text, asked["url"])
            elif asked["kind"] == "json":
                text = pretty(text)
    except MemoryError:
        return 1  # the caller says that it takes too much
    except (Exception, RecursionError) as error:  # noqa: BLE001 - the boundary of this program: a stranger's page
        print(json.dumps({"error": f"{type(error).__name__}: {error}"[:300]}))
        return 0
    text, cut = _INVISIBLE.sub("", text), cut or len(text) > asked["most"]
    print(json.dumps({"title": _INVISIBLE.sub("", title), "text": text[: asked["most"]], "cut": cut}))
    return 0


def pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
