"""The world on disk, so that a fake can be stopped and started without starting to count again.

A gateway remembers which message ids it has seen. A fake that began at 1 again beside an old home would have its new
messages taken for old ones; with `--state` it goes on counting, and leaves a gap for what a kill may have lost.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict
from pathlib import Path

from hermes_testing.telegram_answers import Json
from hermes_testing.telegram_chats import Chat, Message, StoredFile, User, World
from hermes_testing.telegram_updates import Update

_GAP = 100
_COUNTERS = ("last_message_id", "made")


def save(world: World, path: Path) -> None:
    """Replaces the file at once."""
    with world.lock:
        body = json.dumps(_dump(world), ensure_ascii=False)
    fresh = path.with_name(path.name + ".new")
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as stream:
        stream.write(body)
    fresh.replace(path)


def load(world: World, path: Path) -> None:
    """Take over what a fake before us left. Raises `ValueError` for a file that is none of ours."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        with world.lock:
            _fill(world, body)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} holds no state of a fake Telegram ({error!r}); move it away") from error


def _dump(world: World) -> Json:
    return {
        "users": [asdict(user) for user in world.users.values() if user is not world.bot],
        "names": world.names,
        "chats": [asdict(chat) for chat in world.chats.values()],
        "files": [asdict(file) for file in world.files.values()],
        "contents": {path: base64.b64encode(content).decode() for path, content in world.contents.items()},
        "commands": world.commands,
        "pending": [asdict(update) for update in world.updates.pending],
        "last_update_id": world.updates.last_id,
        **{name: vars(world)[name] for name in _COUNTERS},
    }


def _fill(world: World, body: Json) -> None:
    world.users |= {raw["id"]: User(**raw) for raw in body["users"]}
    world.names |= body["names"]
    for raw in body["chats"]:
        chat = _chat(raw)
        chat.last_message_id += _GAP if chat.type == "supergroup" else 0
        world.chats[chat.id] = chat
    world.files |= {raw["id"]: StoredFile(**raw) for raw in body["files"]}
    world.contents |= {path: base64.b64decode(content) for path, content in body["contents"].items()}
    world.commands |= body["commands"]
    world.updates.pending = [Update(**raw) for raw in body["pending"]]
    world.updates.last_id = body["last_update_id"] + _GAP
    world.last_message_id, world.made = (body[name] + _GAP for name in _COUNTERS)


def _chat(raw: Json) -> Chat:
    """JSON has turned the numbers that are keys into text."""
    messages = [
        Message(**(one | {"reactions": {int(user): emoji for user, emoji in one["reactions"].items()}}))
        for one in raw["messages"].values()
    ]
    topics = {int(thread): title for thread, title in raw["topics"].items()}
    return Chat(**(raw | {"messages": {message.id: message for message in messages}, "topics": topics}))
