"""The files that are kept beside the store for one session, and how they go when it goes.

By other programs, in a sessions folder: `<id>.json`, `<id>.jsonl` and `request_dump_<id>_*.json`. By our tools, in
`results` beside that folder: long results, in a folder named by a digest of the id. An id comes from outside, so it is
never joined into a path as it is: one that could not be a plain file name has no files of the first kind. Names are
compared whole with what lies in the folder itself; a dump that belongs to a longer id of a session that still exists is
left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from hermes_state import notes
from hermes_state.ids import is_possible_id
from hermes_state.rows import texts
from hermes_state.statements import Queries
from hermes_state.store import Store

Q = Queries("deletion")

_DUMP = "request_dump_"


def results_folder(home: Path, conversation_id: str) -> Path:
    """Where the tools keep what was too long for a conversation's transcript."""
    import hashlib  # here and below: most who open a store never need it

    return home / "results" / hashlib.sha256(conversation_id.encode()).hexdigest()[:24]


def remove_files(store: Store, session_ids: Iterable[str], sessions_dir: str | Path | None) -> int:
    """Remove the files of sessions that are gone; how many there were. What cannot be removed is logged."""
    gone = list(session_ids)
    ids = {session_id for session_id in gone if _is_file_name(session_id)}
    if sessions_dir is None or not gone:
        return 0
    for session_id in gone:
        _remove_results(results_folder(Path(sessions_dir).parent, session_id))
    if not ids:
        return 0
    removed = 0
    for path in _files_of(store, ids, Path(sessions_dir)):
        try:
            path.unlink(missing_ok=True)
            removed += 1
        except OSError as error:
            notes.warn("delete", "%s could not be removed: %s", path, error)
    return removed


def _remove_results(folder: Path) -> None:
    import shutil

    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        notes.warn("delete", "%s could not be removed: %s", folder, error)


def _files_of(store: Store, ids: set[str], folder: Path) -> list[Path]:
    try:
        names = [entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        notes.warn("delete", "%s could not be read: %s", folder, error)
        return []
    exact = {f"{session_id}{ending}" for session_id in ids for ending in (".json", ".jsonl")}
    owners = {name: _possible_owners(name) for name in names if name.startswith(_DUMP) and name.endswith(".json")}
    dumps = [name for name, possible in owners.items() if ids.intersection(possible)]
    known = ids | _existing(store, {owner for name in dumps for owner in owners[name]})
    mine = [name for name in dumps if next(owner for owner in owners[name] if owner in known) in ids]
    return [folder / name for name in (*exact.intersection(names), *mine)]


def _possible_owners(name: str) -> list[str]:
    """`request_dump_a_b_1.json` may be a dump of `a_b` or of `a`; the longest that is a session is its owner."""
    parts = name.removeprefix(_DUMP).removesuffix(".json").split("_")
    return ["_".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _existing(store: Store, ids: set[str]) -> set[str]:
    wanted = texts(filter(is_possible_id, ids))
    return {row[0] for row in store.engine.read(lambda conn: conn.rows(Q.among, (wanted,)))} if ids else set()


def _is_file_name(session_id: str) -> bool:
    if not is_possible_id(session_id) or session_id.startswith(".") or len(session_id.encode()) > 200:
        return False
    return session_id.isprintable() and not set(session_id) & set("/\\:")
