"""Workload: messages are written, found, taken back and erased while the search index follows behind."""

from __future__ import annotations

from tests.support.sweep import Journal

from hermes_state.session_db import SessionDB

WORDS = ("alder", "birch", "cedar", "dogwood", "elder", "fir")


def work(db: SessionDB, journal: Journal) -> None:
    do = journal.do
    do("open", lambda: db.ledger.open(source="cli", session_id="kept"))
    do("open other", lambda: db.ledger.open(source="cli", session_id="gone"))
    do("alder", lambda: db.append_message("kept", "user", "alder"))
    do("birch", lambda: db.append_message("gone", "user", "birch"))
    do("search", lambda: db.search_messages("alder"))
    taken = do("cedar", lambda: db.append_message("kept", "user", "cedar"))
    do("take back", lambda: db.rewind_to_message("kept", taken))
    do("erase", lambda: db.ledger.delete("gone"))
    do("dogwood", lambda: db.append_message("kept", "user", "dogwood"))
    do("feed", lambda: db.feed(1_000))
    do("elder", lambda: db.append_message("kept", "user", "elder"))
    do("rebuild", db.rebuild_fts)
    do("fir", lambda: db.append_message("kept", "user", "fir"))
    do("search again", lambda: db.search_messages("fir"))


def check(db: SessionDB, _effects: list[str]) -> list[str]:
    """A search finds what is there, at once, and nothing else; the index may be behind or gone."""
    there = {row["content"] for session in ("kept", "gone") for row in db.get_messages(session)}
    found = {word: [hit["snippet"] for hit in db.search_messages(word)] for word in WORDS}
    missing = [f"{word} is stored and not found" for word in WORDS if word in there and len(found[word]) != 1]
    ghosts = [f"{word} is found and not stored" for word in WORDS if word not in there and found[word]]
    return missing + ghosts
