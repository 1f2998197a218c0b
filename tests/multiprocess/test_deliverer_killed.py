"""A deliverer that is killed with -9 again and again: nothing twice without a mark, nothing out of order, no gap."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.processes import Worker
from tests.support.stores import transact

from gateway.outbound.send_item import REPEATED, note
from gateway.platforms.splitting import split_blocks
from hermes_state.session_db import SessionDB
from hermes_state.turns.outbox import NewOutboxItem, OutboxItem
from hermes_testing.clock import Clock

WORKER = Path(__file__).parent / "workers" / "deliver.py"
CHATS, EACH, KILLS, LONG_KILLS, LIMIT = 6, 6, 6, 40, 40


def _text(chat: int, number: int) -> str:
    """Of one, two or three messages."""
    return "\n".join(f"chat {chat} answer {number} part {part} and so on" for part in range(1 + number % 3))


def _owe(db: SessionDB) -> list[OutboxItem]:
    items = []
    for number in range(EACH):
        for chat in range(CHATS):
            new_item = NewOutboxItem(
                dedup_key=f"{chat}:{number}", platform="telegram", chat_id=str(chat),
                payload={"text": _text(chat, number), "kind": "answer"},
            )  # fmt: skip
            if number == 1:  # one that was streamed: a message of it stands already
                draft = transact(db.outbox.draft_in, new_item)
                transact(
                    db.outbox.progress_in, draft, platform_ids=[f"live{chat}"], draft=note(under_way=None, live=True)
                )
            items.append(db.outbox.enqueue(new_item))
    return items


def _chats(file: Path) -> dict[str, list[tuple[str, str]]]:
    """What stands in each chat: (message id, text), in the order of sending."""
    chats: dict[str, dict[str, str]] = {str(chat): {f"live{chat}": "…"} for chat in range(CHATS)}
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        chats[entry["chat"]][entry.get("send") or entry["edit"]] = entry["text"]
    return {chat: list(messages.items()) for chat, messages in chats.items()}


def _killed(address: str | Path, file: Path, dice: random.Random, kills: int) -> None:
    """Deliver everything, with kills in between."""
    for _ in range(kills):
        with Worker(WORKER, address, file) as worker:
            assert worker.line() == "ready"
            time.sleep(dice.uniform(0.005, 0.06))
            worker.kill()
    with Worker(WORKER, address, file) as worker:
        assert worker.line() == "ready"
        assert worker.line(timeout=30) == "idle"
        worker.kill()


def test_kills_lose_no_file_and_double_no_album_without_a_mark(
    db: SessionDB, address: str | Path, tmp_path: Path, clock: Clock, seed: int, pytestconfig: pytest.Config
) -> None:
    clock.advance(time.time() - clock())
    file, dice = tmp_path / "platform.jsonl", random.Random(seed)
    file.touch()
    names = [str(number) for number in range(10)]
    files = [{"path": str(file), "name": name} for name in names]
    chats = [str(chat) for chat in range(CHATS)]
    for chat in chats:
        payload = {"text": "", "kind": "file", "files": files}
        db.outbox.enqueue(NewOutboxItem(dedup_key=chat, platform="telegram", chat_id=chat, payload=payload))
    _killed(address, file, dice, LONG_KILLS if pytestconfig.getoption("--long") else KILLS)

    albums = [json.loads(line) for line in file.read_text().splitlines()]
    for chat in chats:
        here = [album for album in albums if album["chat"] == chat]
        plain = [name for album in here if album["text"] != REPEATED for name in album["files"]]
        assert len(plain) == len(set(plain)), "no file twice without a mark"
        assert {name for album in here for name in album["files"]} == set(names), "and none is missing"
        firsts = [int(album["files"][0]) for album in here]
        assert firsts == sorted(firsts), "in order"
        assert all(album["files"] == names[first : first + 3] for album, first in zip(here, firsts, strict=True))
        item = db.outbox.find(chat)
        assert item is not None and item.state == "sent"
        assert [number.partition("/")[2] for number in item.platform_ids] == names
        assert set(item.platform_ids) <= {f"{album['send']}/{name}" for album in here for name in album["files"]}


def test_kills_lose_and_double_nothing(
    db: SessionDB, address: str | Path, tmp_path: Path, clock: Clock, seed: int, pytestconfig: pytest.Config
) -> None:
    clock.advance(time.time() - clock())
    file, dice = tmp_path / "platform.jsonl", random.Random(seed)
    file.touch()
    items = _owe(db)
    _killed(address, file, dice, LONG_KILLS if pytestconfig.getoption("--long") else KILLS)

    chats = _chats(file)
    texts = Counter(text for messages in chats.values() for _, text in messages)
    for item in items:
        found = db.outbox.get(item.id)
        assert found is not None and found.state == "sent", found
        for piece in split_blocks(item.payload["text"], LIMIT):
            assert texts[piece] <= 1, "nobody was sent anything twice without a mark"
            assert texts[piece] or texts[f"{REPEATED}\n\n{piece}"], "and nothing is missing"
    for chat, messages in chats.items():
        plain = [(name, text.removeprefix(f"{REPEATED}\n\n")) for name, text in messages]
        ours = [text for name, text in plain if text.startswith(f"chat {chat} ") and not name.startswith("live")]
        places = [(int(text.split()[3]), int(text.split()[5])) for text in ours]
        assert places == sorted(places), "in order"
        assert dict(messages)[f"live{chat}"] == split_blocks(_text(int(chat), 1), LIMIT)[0], "finished by an edit"
