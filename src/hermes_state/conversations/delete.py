"""Erasing sessions: their rows, all dependent rows, and their files.

`remove` is the only way to erase a session. In one transaction it deletes the transcript (and tells the search
index to forget it), the usage, the locks, the routes and — with the last segment of a conversation — everything the
work tables hold. A session's delegations are deleted with it. Its cost stays in the sums of its days, without
a name. The remaining rows stay consistent:

- a continuation whose predecessor is deleted is linked to the segment before that one; without one it becomes the first
  segment, and the conversation and all rows keyed by it take its id;
- a segment whose continuation is deleted is no longer "compressed": it can be written to again;
- a branch or another child loses its parent.

Sessions that a person named are deleted only while nobody works on them (`remove_idle`): it takes the lease of every
conversation concerned, so that no turn can begin meanwhile, and refuses when one is held, when a turn runs or was left
running, or when a message waits. A message that has waited for `_RECENT_SECONDS` does not count: the gateway is off, or
/catchup keeps it; it will begin a new conversation. Unsent replies are deleted with the conversation.

On SQLite deleted bytes are overwritten (`secure_delete`); the write-ahead log loses them when it starts over, at the
latest when the last process closes the file or runs `vacuum`, the search index with `optimize_fts`. PostgreSQL reuses
their space. Backups are the operator's. Files are removed after the commit, only by names built from ids that can be
file names.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hermes_state import log
from hermes_state.columns import texts
from hermes_state.conversations import chain, sessions
from hermes_state.errors import ConversationHeld
from hermes_state.ids import ConversationId, is_possible_id
from hermes_state.people import usage
from hermes_state.storage.base import Connection, Store, first, set_columns
from hermes_state.storage.statements import Queries
from hermes_state.turns import leases

Q = Queries("delete")

BATCH = 100  # sessions per transaction; other writers wait no longer than for these
_RECENT_SECONDS = 3600


class Erased(NamedTuple):
    named: int  # how many of the named sessions existed
    ids: list[str]  # every deleted session, delegations included


class Deletion(Store):
    """The part of `SessionDB` that erases sessions by id."""

    def delete_sessions(self, session_ids: Iterable[str], sessions_dir: str | Path | None = None) -> int:
        """Erase these sessions; returns how many existed. Unknown, repeated and impossible ids do not count."""
        wanted = list(dict.fromkeys(filter(is_possible_id, session_ids)))
        count = 0
        for at in range(0, len(wanted), BATCH):
            erased = self.engine.write(partial(remove_idle, self, session_ids=wanted[at : at + BATCH]))
            remove_files(self, erased.ids, sessions_dir)
            count += erased.named
        return count


def remove_idle(store: Store, conn: Connection, session_ids: Iterable[str]) -> Erased:
    """Like `remove`; raises `ConversationHeld` when somebody works on one of them, or on its delegations."""
    wanted = list(filter(is_possible_id, session_ids))
    checked: set[str] = set()
    for locked in (False, True):  # leases before rows, as turns lock them; the second read finds new rows
        asked = _present(conn, wanted, lock=locked)
        gone = _with_delegations(conn, asked, lock=locked)
        for (root,) in conn.rows(Q.roots, (texts(gone),)):
            if root not in checked:
                checked.add(root)
                _check_idle(store, conn, root)
    return _remove(conn, asked, gone)


def _check_idle(store: Store, conn: Connection, root: ConversationId) -> None:
    held = None
    try:
        with leases.held(store, conn, root, "delete"):
            pass  # nobody else gets it until this transaction ends
    except ConversationHeld as error:
        held = error
    running = leases.running_turn(conn, root)
    if running is not None:
        raise ConversationHeld(
            f"a turn is running in conversation {root}; nothing was deleted",
            hint=f"Stop it first: /stop where it runs, or hermes turns cancel {running}.",
        )
    if held is not None:
        raise ConversationHeld(f"somebody is working on conversation {root}; nothing was deleted")
    if conn.rows(Q.waiting, (root, store.clock() - _RECENT_SECONDS)):
        raise ConversationHeld(
            f"a message waits for its answer in conversation {root}; nothing was deleted",
            hint="Wait until it is answered, or send /stop where it was written.",
        )


def remove(conn: Connection, session_ids: Iterable[str]) -> Erased:
    """Erase sessions and their delegations, and keep the rest of their conversations consistent."""
    asked = _present(conn, filter(is_possible_id, session_ids), lock=True)
    return _remove(conn, asked, _with_delegations(conn, asked, lock=True))


def _remove(conn: Connection, asked: list[str], gone: dict[str, None]) -> Erased:
    if not gone:
        return Erased(0, [])
    _orphan_others(conn, gone)
    emptied, remaining = [], []
    for (root,) in conn.rows(Q.roots, (texts(gone),)):
        left = _regroup(conn, root, gone)
        remaining += left
        if not left:
            emptied.append(root)
    tables = ("messages", "session_model_usage", "compression_locks", "routes")
    for statement in (Q.forget_words, usage.Q.keep_spending, Q.erase_days, Q.erase_marks, *map(Q.erase_of.on, tables)):
        conn.run(statement, (texts(gone),))
    conn.run(Q.erase.on("sessions"), (texts(gone),))
    if emptied:
        from hermes_state.maintenance import retention

        conn.run(Q.erase.on("conversations"), (texts(emptied),))
        retention.erase(conn, emptied)
    for root in remaining:
        conn.run(Q.no_longer_compressed, (root,))
        chain.settle(conn, root)
    return Erased(len(asked), list(gone))


def _present(conn: Connection, session_ids: Iterable[str], *, lock: bool) -> list[str]:
    """The existing ones; `lock` prevents new messages and children for them until the transaction ends."""
    return [row[0] for row in conn.rows(Q.among.locked if lock else Q.among, (texts(session_ids),))]


def _with_delegations(conn: Connection, session_ids: list[str], *, lock: bool) -> dict[str, None]:
    """The sessions and their delegations, as whole conversations; an old home may contain cycles."""
    gone = dict.fromkeys(session_ids)
    wave = list(gone)
    while wave:
        children = conn.rows(Q.children, (texts(wave),))  # the marks may have been set after the row was created
        roots = [root for root, kind, config in children if "delegate" in (kind, sessions.kind_by_marks(config))]
        segments = [row[0] for row in conn.rows(Q.segments_of, (texts(roots),))] if roots else []
        wave = _present(conn, [segment for segment in segments if segment not in gone], lock=lock)
        gone.update(dict.fromkeys(wave))
    return gone


def _orphan_others(conn: Connection, gone: dict[str, None]) -> None:
    """Branches and other children with their own conversations lose their parent; lists show them from now on."""
    everybody = texts(gone)
    for (child,) in conn.rows(Q.other_children, (everybody, everybody)):
        set_columns(conn, "sessions", child, parent_session_id=None)
        conn.run(Q.stand_alone, (child,))
        chain.settle(conn, child)
    conn.run(Q.forget_origin, (everybody,))


def _regroup(conn: Connection, root: str, gone: dict[str, None]) -> list[str]:
    """Link the remaining segments around those in `gone`; returns the conversations they form."""
    parents: dict[str, str | None] = dict(conn.rows(chain.Q.segments, (root,)))
    lost = [segment for segment in parents if segment in gone]
    if len(lost) == len(parents):
        return []
    conversation = first(conn.rows(chain.Q.conversation, (root,)))
    tip = None if conversation is None else conversation[1]
    tops = []
    for segment in [s for s, parent in parents.items() if s not in gone and parent in gone]:
        before = _kept_before(parents, segment, gone) or (None if root in gone else root)
        set_columns(conn, "sessions", segment, parent_session_id=before)
        parents[segment] = before
        if before is None:
            tops.append(segment)
    if tip is not None and tip not in gone:
        conn.run(Q.follow_tip, (tip, texts(lost)))
    if root not in gone:
        return [root]
    _inherit(conn, root, next((top for top in tops if _leads_to(parents, top, tip)), tops[0]))
    for top in tops:
        for segment in parents:
            if segment not in gone and _leads_to(parents, top, segment):
                set_columns(conn, "sessions", segment, root_id=top)
        if conversation is not None:  # other continuations beside the heir: they were hidden behind it, and stay hidden
            chain.found(conn, top, "child", None, owner=conversation[2], now=conversation[5])
    return tops


def _kept_before(parents: dict[str, str | None], segment: str, gone: dict[str, None]) -> str | None:
    """The nearest remaining segment before this one."""
    before = parents[segment]
    for _ in parents:  # a broken home may contain a cycle
        if before is None or before not in parents:
            return None
        if before not in gone:
            return before
        before = parents[before]
    return None


def _inherit(conn: Connection, root: str, heir: str) -> None:
    """The first segment is deleted: the conversation and all rows keyed by it take the heir's id."""
    from hermes_state.maintenance import retention

    retention.erase(conn, [ConversationId(heir)])  # rows that an earlier conversation of that id may have left
    conn.run(Q.inherit_conversation, (heir, heir, root))
    for table in (*retention.OF_CONVERSATIONS, "grants", "prefix_break_counts", "budget_reservations"):
        conn.run(Q.rekey.on(table), (heir, root))
    conn.run(Q.rekey_tallies, (heir, root))
    conn.run(chain.Q.delete_conversation, (root,))


def _leads_to(parents: dict[str, str | None], top: str, segment: str | None) -> bool:
    for _ in range(len(parents) + 1):
        if segment == top:
            return True
        if segment is None:
            break
        segment = parents.get(segment)
    return False


_DUMP = "request_dump_"


def results_folder(home: Path, conversation_id: str) -> Path:
    """The folder of tool results that were too long for a conversation's transcript."""
    import hashlib  # imported here and below: most programs that open a store never need it

    return home / "results" / hashlib.sha256(conversation_id.encode()).hexdigest()[:24]


def remove_files(store: Store, session_ids: Iterable[str], sessions_dir: str | Path | None) -> int:
    """Remove the files of deleted sessions; returns their number. A file that cannot be removed is logged."""
    gone = list(session_ids)
    ids = {session_id for session_id in gone if _is_file_name(session_id)}
    if sessions_dir is None or not gone:
        return 0
    for session_id in gone:
        _remove_results(results_folder(Path(sessions_dir).parent, session_id))
    from hermes_state.turns.processes import Processes  # late: most programs that open the store delete nothing

    Processes(store).remove_folders(Path(sessions_dir).parent)
    if not ids:
        return 0
    removed = 0
    for path in _files_of(store, ids, Path(sessions_dir)):
        try:
            path.unlink(missing_ok=True)
            removed += 1
        except OSError as error:
            log.warn("delete", "%s could not be removed: %s", path, error)
    return removed


def _remove_results(folder: Path) -> None:
    import shutil

    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warn("delete", "%s could not be removed: %s", folder, error)


def _files_of(store: Store, ids: set[str], folder: Path) -> list[Path]:
    try:
        names = [entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
    except OSError as error:
        log.warn("delete", "%s could not be read: %s", folder, error)
        return []
    exact = {f"{session_id}{ending}" for session_id in ids for ending in (".json", ".jsonl")}
    owners = {name: _possible_owners(name) for name in names if name.startswith(_DUMP) and name.endswith(".json")}
    dumps = [name for name, possible in owners.items() if ids.intersection(possible)]
    known = ids | _existing(store, {owner for name in dumps for owner in owners[name]})
    mine = [name for name in dumps if next(owner for owner in owners[name] if owner in known) in ids]
    return [folder / name for name in (*exact.intersection(names), *mine)]


def _possible_owners(name: str) -> list[str]:
    """`request_dump_a_b_1.json` may be a dump of `a_b` or of `a`; the longest existing session id is its owner."""
    parts = name.removeprefix(_DUMP).removesuffix(".json").split("_")
    return ["_".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _existing(store: Store, ids: set[str]) -> set[str]:
    wanted = texts(filter(is_possible_id, ids))
    return {row[0] for row in store.engine.read(lambda conn: conn.rows(Q.among, (wanted,)))} if ids else set()


def _is_file_name(session_id: str) -> bool:
    if not is_possible_id(session_id) or session_id.startswith(".") or len(session_id.encode()) > 200:
        return False
    return session_id.isprintable() and not set(session_id) & set("/\\:")
