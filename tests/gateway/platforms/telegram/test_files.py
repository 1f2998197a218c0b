"""Files that people send: fetched when asked for, kept by hash, told for what they are."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.platforms.base import Attachment, CannotFetch, MessageType
from gateway.turns import attachments
from hermes_state.people import media_files
from hermes_testing.telegram.server import FakeTelegram

pytestmark = pytest.mark.slow

Connected = Callable[..., Any]
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))
_MIB = 1 << 20
LIMITS = attachments.MediaLimits(file_bytes=1_000, folder_bytes=10_000)


def taken(
    telegram: FakeTelegram,
    connected: Connected,
    home: Path,
    send: Callable[[Any], Any],
    limits: attachments.MediaLimits = LIMITS,
) -> attachments.Stored:
    async def run() -> attachments.Stored:
        send(telegram.person("ada"))
        async with connected() as (adapter, inbox):
            await telegram.wait_async(lambda: len(inbox.events) == 1, "the message")
            (attachment,) = inbox.events[0].attachments
            return await attachments.take(adapter, attachment, home=home, limits=limits)

    return asyncio.run(run())


def test_a_picture_is_kept_by_its_hash_and_shown_to_a_model_that_sees(
    telegram: FakeTelegram, connected: Connected, home: Path
) -> None:
    stored = taken(telegram, connected, home, lambda ada: ada.photo(PNG, caption="look"))
    assert stored.path == home / "media" / f"{hashlib.sha256(PNG).hexdigest()}.png"
    assert stored.path.read_bytes() == PNG
    assert (stored.path.stat().st_mode & 0o777, stored.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (stored.mime, stored.kind) == ("image/png", MessageType.PHOTO)
    part = attachments.image_part(stored)
    assert part["image_url"] == {"url": f"data:image/png;base64,{base64.b64encode(PNG).decode()}"}


def test_the_same_file_is_kept_once(telegram: FakeTelegram, connected: Connected, home: Path) -> None:
    first = taken(telegram, connected, home, lambda ada: ada.document(b"text", filename="a.txt"))
    draft = media_files.draft(home)
    draft.write_bytes(b"text")
    assert media_files.keep(home, draft, ending=".txt", most=100).path == first.path
    assert [path.name for path in (home / "media").iterdir()] == [first.path.name]


@pytest.mark.parametrize(
    ("content", "filename", "ending", "kind"),
    [
        (b"%PDF-1.7 x", "paper.pdf", ".pdf", MessageType.DOCUMENT),
        (b"%PDF-1.7 x", "paper.png", ".pdf", MessageType.DOCUMENT),
        (b"a,b", "../../../etc/cron.d/x.csv", ".csv", MessageType.DOCUMENT),
        (b"a\0b", "data.csv", ".bin", MessageType.DOCUMENT),
        (b"PK\x03\x04...", "letter.docx", ".docx", MessageType.DOCUMENT),
        (b"hello", "no ending", ".bin", MessageType.DOCUMENT),
        (b"hello", "evil\n; rm -rf .sh", ".bin", MessageType.DOCUMENT),
    ],
)
def test_a_file_is_what_its_bytes_say(
    telegram: FakeTelegram,
    connected: Connected,
    home: Path,
    content: bytes,
    filename: str,
    ending: str,
    kind: MessageType,
) -> None:
    stored = taken(telegram, connected, home, lambda ada: ada.document(content, filename=filename))
    assert (stored.path.parent, stored.path.suffix, stored.kind) == (home / "media", ending, kind)
    assert "\n" not in attachments.line(stored, has_files=True)
    assert str(stored.path) in attachments.line(stored, has_files=True)
    assert str(stored.path) not in attachments.line(stored, has_files=False)


def test_a_photo_that_is_none_is_not_shown_as_one(telegram: FakeTelegram, connected: Connected, home: Path) -> None:
    stored = taken(telegram, connected, home, lambda ada: ada.photo(b"<svg onload=...>"))
    assert (stored.kind, stored.is_picture) == (MessageType.DOCUMENT, False)


def test_a_voice_note_is_kept(telegram: FakeTelegram, connected: Connected, home: Path) -> None:
    stored = taken(telegram, connected, home, lambda ada: ada.voice(b"OggS......"))
    assert (stored.kind, stored.path.suffix, stored.path.exists()) == (MessageType.VOICE, ".ogg", True)


@pytest.mark.parametrize(
    ("content", "why"), [(b"x" * 2_000, "at most 1,000"), (b"\x7fELF.....", "program"), (b"MZ\x90\x00", "program")]
)
def test_what_is_too_large_or_a_program_is_not_taken(
    telegram: FakeTelegram, connected: Connected, home: Path, content: bytes, why: str
) -> None:
    with pytest.raises(CannotFetch, match=why) as caught:
        taken(telegram, connected, home, lambda ada: ada.document(content, filename="thing"))
    assert [path.name for path in (home / "media").glob("*")] == []
    attachment = Attachment(ref="x", kind=MessageType.DOCUMENT, name="a\nb")
    assert attachments.refusal_line(attachment, caught.value).startswith("[document: a b; it was not accepted:")


def test_a_file_whose_size_nobody_tells_is_given_up_at_the_limit(
    telegram: FakeTelegram, connected: Connected, home: Path
) -> None:
    with pytest.raises(CannotFetch, match="at most 1,000 bytes"):
        taken(telegram, connected, home, lambda ada: ada.document(b"x" * 2_000, filename="thing", sized=False))
    assert [path.name for path in (home / "media").glob("*")] == []
    small = taken(telegram, connected, home, lambda ada: ada.document(b"y" * 900, filename="a.txt", sized=False))
    assert small.path.read_bytes() == b"y" * 900


def test_a_large_file_does_not_pass_through_memory_whole(
    telegram: FakeTelegram, connected: Connected, home: Path
) -> None:
    large = attachments.MediaLimits(file_bytes=20 * _MIB, folder_bytes=40 * _MIB)

    async def run() -> tuple[attachments.Stored, int]:
        telegram.person("ada").document(b"z" * (16 * _MIB), filename="large.txt")
        async with connected() as (adapter, inbox):
            await telegram.wait_async(lambda: len(inbox.events) == 1, "the message")
            (attachment,) = inbox.events[0].attachments
            tracemalloc.start()
            try:
                stored = await attachments.take(adapter, attachment, home=home, limits=large)
                return stored, tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    stored, most = asyncio.run(run())
    assert stored.size == 16 * _MIB
    assert most < 8 * _MIB


def test_a_server_on_this_machine_hands_out_paths(telegram: FakeTelegram, connected: Connected, home: Path) -> None:
    """A Bot API server in local mode; only when the operator says that it is one."""
    lies_at = home.parent / "of-the-server.txt"

    async def fetch(target: Path, *, limit: int, **extra: Any) -> None:
        telegram.world.store("document", b"", name="a.txt", mime="text/plain", sized=False).path = str(lies_at)
        file_id = list(telegram.world.files)[-1]
        async with connected(**extra) as (adapter, _):
            await adapter.fetch(Attachment(ref=file_id, kind=MessageType.DOCUMENT), target, limit=limit)

    lies_at.write_bytes(b"local" * 100)
    asyncio.run(fetch(home.parent / "one", limit=500, local_mode=True))
    assert (home.parent / "one").read_bytes() == b"local" * 100
    with pytest.raises(CannotFetch, match="at most 499"):
        asyncio.run(fetch(home.parent / "two", limit=499, local_mode=True))
    with pytest.raises(CannotFetch, match="this machine"):
        asyncio.run(fetch(home.parent / "three", limit=500))


def test_the_folder_is_bounded_and_the_oldest_go_first(
    telegram: FakeTelegram, connected: Connected, home: Path
) -> None:
    for number in range(5):
        draft = media_files.draft(home)
        draft.write_bytes(bytes([number]) * 100)
        kept = media_files.keep(home, draft, ending=".bin", most=1_000)
        os.utime(kept.path, (1_000 - number, 1_000 - number))  # the last is the oldest, and has not been delivered
    few = attachments.MediaLimits(file_bytes=1_000, folder_bytes=250, needed=lambda: {kept.path.name})
    stored = taken(telegram, connected, home, lambda ada: ada.document(b"new" * 10, filename="n.txt"), few)
    left = {path.read_bytes()[:1] for path in (home / "media").iterdir()}
    assert left == {b"\x00", b"\x04", b"n"}
    assert stored.path.exists()
