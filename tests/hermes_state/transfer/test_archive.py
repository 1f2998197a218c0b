"""Archives: what is exported comes back the same, on either engine; what is not an archive changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.kill_points import points_in_child
from tests.support.sample_store import fill_every_table, tell_story
from tests.support.stores import ENGINES, EngineName, TestStores

from hermes_config.errors import UsageError
from hermes_config.limits import Limits
from hermes_state.errors import ArchiveRefused, SessionNotFound, StateError
from hermes_state.ids import LOCAL_OWNER
from hermes_state.session_db import SessionDB
from hermes_state.transfer import archive_import, archive_read, archive_write, copy_all, tables
from hermes_testing.clock import Clock

pytestmark = pytest.mark.slow

Other = Callable[..., SessionDB]


@pytest.fixture
def other(stores: TestStores) -> Iterator[Other]:
    """More stores, empty ones."""
    opened = []

    def fresh(engine: EngineName = "sqlite", **options: object) -> SessionDB:
        opened.append(SessionDB(stores.fresh(engine), **options))  # type: ignore[arg-type]
        return opened[-1]

    yield fresh
    for db in opened:
        db.close()


@pytest.fixture
def story(other: Other, tmp_path: Path) -> Path:
    """An archive of a small made-up home."""
    db = other()
    tell_story(db)
    archive_write.export(db, tmp_path / "story.zip")
    return tmp_path / "story.zip"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(found.pop("manifest.json"))
    del manifest["made_at"], manifest["engine"]
    return {**found, "manifest": json.dumps(manifest, sort_keys=True).encode()}


RIGHTS = ("people.jsonl", "identities.jsonl", "routes.jsonl")
OF_A_CHAT = ("session_key", "user_id", "chat_id", "chat_type", "thread_id", "origin_json", "profile_name")


def said(path: Path) -> dict[str, list[dict[str, object]]]:
    """What an archive says of conversations, without what gives rights or leads a chat to one."""
    found = {name: data for name, data in members(path).items() if name.endswith(".jsonl") and name not in RIGHTS}
    lines = {name: [json.loads(line) for line in data.splitlines()] for name, data in found.items()}
    for row in lines["conversations.jsonl"]:
        row.pop("owner_id", None)
    for row in lines["sessions.jsonl"]:
        for name in OF_A_CHAT:
            row.pop(name, None)
    return lines


def rewritten(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy of an archive after somebody has had their hands on it."""
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    change(found)
    target = path.with_name("changed.zip")
    target.unlink(missing_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in found.items():
            file.writestr(name, data)
    return target


def with_sums(found: dict[str, bytes]) -> None:
    """Make the manifest fit again, as somebody would who means it."""
    manifest = json.loads(found["manifest.json"])
    manifest["files"] = {
        name: {"rows": data.count(b"\n"), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in found.items()
        if name != "manifest.json"
    }
    found["manifest.json"] = json.dumps(manifest).encode()


def everything(db: SessionDB) -> dict[str, list[tuple[object, ...]]]:
    return db.engine.read(lambda conn: {t.name: list(tables.rows(conn, t)) for t in tables.every()})


# -- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ENGINES)
def test_a_round_trip_gives_an_equal_archive(db: SessionDB, there: EngineName, other: Other, tmp_path: Path) -> None:
    tell_story(db)
    archive_write.export(db, tmp_path / "one.zip")
    target = other(there)
    report = archive_import.import_archive(target, tmp_path / "one.zip")
    assert (len(report.imported), report.sessions, report.messages) == (3, 4, 9)
    archive_write.export(target, tmp_path / "two.zip")
    assert said(tmp_path / "two.zip") == said(tmp_path / "one.zip")
    assert len(said(tmp_path / "two.zip")["messages.jsonl"]) == 9


def test_what_people_see_is_the_same_after_a_round_trip(db: SessionDB, other: Other, tmp_path: Path) -> None:
    told = tell_story(db)
    archive_write.export(db, tmp_path / "one.zip")
    target = other()
    archive_import.import_archive(target, tmp_path / "one.zip")
    for session in told.values():
        theirs = db.get_messages_as_conversation(session, include_ancestors=True)
        assert target.get_messages_as_conversation(session, include_ancestors=True) == theirs
        assert target.get_session_title(session) == db.get_session_title(session)
        assert len(target.get_messages(session, include_inactive=True)) == len(
            db.get_messages(session, include_inactive=True)
        )
    assert target.append_message(told["tip"], "user", "and on it goes")


def test_the_same_store_gives_the_same_bytes(db: SessionDB, clock: Clock, tmp_path: Path) -> None:
    tell_story(db)
    archive_write.export(db, tmp_path / "one.zip")
    archive_write.export(db, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    clock.advance(3600)
    archive_write.export(db, tmp_path / "later.zip")
    assert members(tmp_path / "later.zip") == members(tmp_path / "one.zip")


def test_one_conversation_goes_with_its_segments_people_and_route_only(
    db: SessionDB, other: Other, tmp_path: Path
) -> None:
    told = tell_story(db)
    db.people.ensure(platform="telegram", native_id="7", display_name="Somebody else")
    archive_write.export(db, tmp_path / "trip.zip", conversations=[told["tip"]])
    target = other()
    report = archive_import.import_archive(target, tmp_path / "trip.zip")
    assert (report.imported, report.sessions) == ([told["trip"]], 2)
    assert report.left_out == {"people": 1, "identities": 1, "routes": 1}
    assert target.get_session(told["desk"]) is None
    assert b"Somebody else" not in b"".join(members(tmp_path / "trip.zip").values())


def test_a_branch_finds_its_origin_again_when_both_come_one_after_the_other(
    db: SessionDB, other: Other, tmp_path: Path
) -> None:
    told = tell_story(db)
    archive_write.export(db, tmp_path / "branch.zip", conversations=[told["branch"]])
    archive_write.export(db, tmp_path / "all.zip")
    target = other()
    archive_import.import_archive(target, tmp_path / "branch.zip")
    alone = target.get_session(told["branch"])
    assert alone is not None
    assert alone["parent_session_id"] is None
    archive_import.import_archive(target, tmp_path / "all.zip")
    linked = target.get_session(told["branch"])
    assert linked is not None
    assert linked["parent_session_id"] == told["tip"]


def test_an_unknown_conversation_is_told_and_no_file_is_left(db: SessionDB, tmp_path: Path) -> None:
    with pytest.raises(SessionNotFound, match="nobody"):
        archive_write.export(db, tmp_path / "x.zip", conversations=["nobody"])
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".zip", ".tmp")]


def test_the_file_is_private_and_never_written_over(db: SessionDB, tmp_path: Path) -> None:
    archive_write.export(db, tmp_path / "x.zip")
    assert stat.S_IMODE((tmp_path / "x.zip").stat().st_mode) == 0o600
    before = (tmp_path / "x.zip").read_bytes()
    with pytest.raises(UsageError, match="already"):
        archive_write.export(db, tmp_path / "x.zip")
    assert (tmp_path / "x.zip").read_bytes() == before


def test_credentials_stay_here(db: SessionDB, tmp_path: Path) -> None:
    tell_story(db)
    db.save_gateway_routing_entry("broken", '{"api_key": "sk-hidden"')
    archive_write.export(db, tmp_path / "x.zip")
    found = b"".join(members(tmp_path / "x.zip").values())
    assert b"sk-hidden" not in found
    assert b"temperature" in found


# -- merging -------------------------------------------------------------------------------------------------------


def test_importing_twice_doubles_nothing(db: SessionDB, story: Path) -> None:
    archive_import.import_archive(db, story)
    before = everything(db)
    report = archive_import.import_archive(db, story)
    assert (report.imported, len(report.already_here), report.different) == ([], 3, [])
    assert everything(db) == before


def test_a_conversation_that_says_something_else_here_is_reported_and_kept(db: SessionDB, story: Path) -> None:
    db.create_session("desk", "cli")
    db.append_message("desk", "user", "mine")
    report = archive_import.import_archive(db, story)
    assert report.different == ["desk"]
    assert [m["content"] for m in db.get_messages("desk")] == ["mine"]


def test_a_title_that_is_taken_gets_a_number_and_the_next_import_is_still_quiet(db: SessionDB, story: Path) -> None:
    db.create_session("mine", "cli")
    db.set_session_title("mine", "Trip to Kyoto")
    report = archive_import.import_archive(db, story)
    assert report.renamed == {"trip-2": "Trip to Kyoto #2"}
    assert db.get_session_title("mine") == "Trip to Kyoto"
    assert archive_import.import_archive(db, story).different == []


@pytest.mark.parametrize("empty", [True, False])
def test_an_archive_brings_no_people_and_no_routes_also_into_an_empty_store(
    db: SessionDB, story: Path, *, empty: bool
) -> None:
    if not empty:
        db.create_session("mine", "cli")
    report = archive_import.import_archive(db, story)
    assert report.left_out == {"people": 1, "identities": 1, "routes": 1}
    assert [person.id for person in db.people.list()] == [LOCAL_OWNER]
    assert db.engine.write(db.ledger.resolving("agent:main:telegram:dm:42")) is None
    for root in report.imported:
        assert db.ledger.owner(root) == LOCAL_OWNER
    rows = [db.get_session(one) or {} for one in ("trip", "trip-2", "a-branch", "desk")]
    assert [[row[name] for name in OF_A_CHAT] for row in rows] == [[None] * len(OF_A_CHAT)] * 4


def test_an_archive_lets_nobody_speak_for_the_owner(db: SessionDB, story: Path) -> None:
    db.people.owner()

    def claim(found: dict[str, bytes]) -> None:
        line = {"platform": "telegram", "account": "", "native_id": "666", "person_id": "owner", "created_at": 1.0}
        found["identities.jsonl"] += json.dumps(line).encode() + b"\n"
        with_sums(found)

    archive_import.import_archive(db, rewritten(story, claim))
    assert db.people.find(platform="telegram", native_id="666") is None
    assert db.people.find(platform="telegram", native_id="42") is None


@pytest.mark.parametrize("new", [False, True], ids=["own conversation", "new conversation"])
def test_an_archive_links_nothing_to_another_persons_conversation(db: SessionDB, tmp_path: Path, *, new: bool) -> None:
    bob, carol = (db.people.ensure(platform="telegram", native_id=name).id for name in ("bob", "carol"))
    for name, owner in (("bobs", bob), ("carols", carol)):
        db.ledger.open(source="telegram", owner=owner, session_id=name)
        db.append_message(name, "user", f"of {name}")
    archive_write.export(db, tmp_path / "bob.zip", conversations=["bobs"])

    def forge(found: dict[str, bytes]) -> None:
        for name in [name for name in found if name.endswith(".jsonl")]:
            found[name] = found[name].replace(b'"bobs"', b'"fresh"') if new else found[name]
        session = json.loads(found["sessions.jsonl"])
        found["sessions.jsonl"] = json.dumps(session | {"parent_session_id": "carols"}).encode() + b"\n"
        with_sums(found)

    report = archive_import.import_archive(db, rewritten(tmp_path / "bob.zip", forge))
    name = "fresh" if new else "bobs"
    assert (report.imported if new else report.already_here) == [name]
    assert (db.get_session(name) or {})["parent_session_id"] is None
    said = [one["content"] for one in db.get_messages_as_conversation(name, include_ancestors=True)]
    assert said == ["of bobs"]


def test_a_dry_run_tells_the_same_and_changes_nothing(db: SessionDB, story: Path) -> None:
    db.create_session("desk", "cli")
    before = everything(db)
    rehearsed = archive_import.import_archive(db, story, dry_run=True)
    assert everything(db) == before
    done = archive_import.import_archive(db, story)
    assert (
        (rehearsed.imported, rehearsed.different) == (done.imported, done.different) == (["a-branch", "trip"], ["desk"])
    )


_KILLED = """
import os, signal, sys
from hermes_state.transfer import archive_import
from hermes_state.session_db import SessionDB
from pathlib import Path
calls = 0
def progress(done, total):
    global calls
    calls += 1
    if calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
address = sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1])
archive_import.import_archive(SessionDB(address), Path(sys.argv[2]), progress=progress)
"""


def test_a_killed_import_is_completed_by_running_it_again(
    db: SessionDB, address: str | Path, story: Path, tmp_path: Path
) -> None:
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(address), str(story)], check=False, timeout=60)
    assert ended.returncode == -9
    half = db.session_count()
    assert 0 < half < 4
    report = archive_import.import_archive(db, story)
    assert not report.different
    archive_write.export(db, tmp_path / "again.zip")
    assert said(tmp_path / "again.zip") == said(story)


def test_wherever_an_import_is_killed_running_it_again_completes_it(
    story: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    def imports(database: Path) -> Callable[[], object]:
        return lambda: archive_import.import_archive(SessionDB(database), story)

    total = points_in_child(imports(tmp_path / "whole" / "state.db"))
    assert total > 40
    step = 1 if request.config.getoption("--long") else total // 25
    for fatal in range(1, total, step):
        database = tmp_path / f"killed-{fatal}" / "state.db"
        assert points_in_child(imports(database), fatal=fatal) == 0
        db = SessionDB(database)
        whole = {row["id"] for row in db.list_sessions_rich(include_children=True)}
        assert all(db.message_count(session) for session in whole), (
            "a conversation is here with its messages or not at all"
        )
        assert not archive_import.import_archive(db, story).different
        archive_write.export(db, database.with_name("again.zip"))
        db.close()
        assert said(database.with_name("again.zip")) == said(story), f"killed at point {fatal} of {total}"


texts = st.text(st.characters(), max_size=30) | st.sampled_from(["\0", "\ud800", "\\0", "\u2028", "京都\r\n", "\\"])
contents = st.recursive(
    texts | st.none() | st.booleans() | st.integers(-(2**53), 2**53),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
).filter(lambda content: isinstance(content, (str, list, dict)) or content is None)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(st.tuples(contents, texts), min_size=1, max_size=4))
def test_whatever_was_said_comes_back(said: list[tuple[object, str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("said")
    source, target = SessionDB(folder / "a.db"), SessionDB(folder / "b.db")
    source.create_session("s", "cli")
    for content, reasoning in said:
        source.append_message("s", "assistant", content, reasoning=reasoning)
    archive_write.export(source, folder / "x.zip")
    archive_import.import_archive(target, folder / "x.zip")
    for theirs, ours in zip(source.get_messages("s"), target.get_messages("s"), strict=True):
        assert {**ours, "id": theirs["id"]} == theirs
    source.close()
    target.close()


# -- what is refused -----------------------------------------------------------------------------------------------


def no_manifest(found: dict[str, bytes]) -> None:
    del found["manifest.json"]


def other_format(found: dict[str, bytes]) -> None:
    found["manifest.json"] = b'{"format": "something-else", "version": 1}'


def from_the_future(found: dict[str, bytes]) -> None:
    found["manifest.json"] = found["manifest.json"].replace(b'"version": 2', b'"version": 3')
    found["hologram.bin"] = b"?"


def changed_word(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] = found["messages.jsonl"].replace(b"in Japan", b"in Spain")


def dropped_line(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] = found["messages.jsonl"].split(b"\n", 1)[1]


def dropped_file(found: dict[str, bytes]) -> None:
    del found["messages.jsonl"]


def path_outside(found: dict[str, bytes]) -> None:
    found["../../outside.jsonl"] = b"{}\n"
    with_sums(found)


def unknown_column(found: dict[str, bytes]) -> None:
    found["people.jsonl"] = found["people.jsonl"].replace(b'"role"', b'"role); DROP TABLE people"')
    with_sums(found)


def wrong_type(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] = found["messages.jsonl"].replace(b'"active":1', b'"active":"1"')
    with_sums(found)


def huge_number(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] = found["messages.jsonl"].replace(b'"active":1', b'"active":' + b"9" * 40)
    with_sums(found)


def lone_surrogate(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] = found["messages.jsonl"].replace(b"in Japan", b"\\ud800")
    with_sums(found)


def message_of_nobody(found: dict[str, bytes]) -> None:
    found["messages.jsonl"] += b'{"role":"user","session_id":"ghost","timestamp":1.0}\n'
    with_sums(found)


def sessions_out_of_order(found: dict[str, bytes]) -> None:
    found["sessions.jsonl"] = b"".join(reversed(found["sessions.jsonl"].splitlines(keepends=True)))
    with_sums(found)


def deep_nesting(found: dict[str, bytes]) -> None:
    found["people.jsonl"] = b"[" * 100_000 + b"\n"
    with_sums(found)


def odd_numbers(found: dict[str, bytes]) -> None:
    found["manifest.json"] = found["manifest.json"].replace(b'"version"', b'"numbers": {"messages": "many"}, "version"')


CHANGES = [
    odd_numbers,
    no_manifest, other_format, from_the_future, changed_word, dropped_line, dropped_file, path_outside, unknown_column,
    wrong_type, huge_number, lone_surrogate, message_of_nobody, sessions_out_of_order, deep_nesting,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_archive_is_refused_in_one_line_and_changes_nothing(
    change: Callable[[dict[str, bytes]], None], story: Path, other: Other
) -> None:
    target = other()
    changed = rewritten(story, change)
    with pytest.raises(ArchiveRefused) as caught:
        archive_import.import_archive(target, changed)
    assert "\n" not in caught.value.one_line()
    assert str(changed) in caught.value.one_line()
    assert not any(everything(target).values())


@pytest.mark.parametrize("data", [b"", b"PK", b"not a zip at all", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_archive_is_refused(data: bytes, other: Other, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(ArchiveRefused, match="nothing was changed"):
        archive_import.import_archive(other(), tmp_path / "x.zip")
    with pytest.raises(ArchiveRefused, match="No such file"):
        archive_import.import_archive(other(), tmp_path / "missing.zip")


def test_a_cut_or_damaged_file_is_refused(story: Path, other: Other) -> None:
    whole = story.read_bytes()
    target = other()
    for damaged in (whole[: len(whole) // 2], whole[:200] + b"\xff" * 40 + whole[240:]):
        story.write_bytes(damaged)
        with pytest.raises(ArchiveRefused):
            archive_import.import_archive(target, story)
    assert not any(everything(target).values())


def test_a_bomb_is_refused_before_it_is_unpacked(story: Path, other: Other) -> None:
    def explode(found: dict[str, bytes]) -> None:
        found["messages.jsonl"] = b" " * 40_000_000
        with_sums(found)

    bomb = rewritten(story, explode)
    assert bomb.stat().st_size < 100_000
    with pytest.raises(ArchiveRefused, match=r"40,0.* bytes"):
        archive_import.import_archive(other(limits=Limits(import_max_ratio=100)), bomb)
    with pytest.raises(ArchiveRefused, match=r"40,0.* bytes"):
        archive_import.import_archive(other(limits=Limits(import_max_bytes=2**20)), bomb)


def test_an_export_stays_small_in_memory(other: Other, tmp_path: Path) -> None:
    """Far more content than memory it may take: the store is never held as a whole."""
    db = other()
    db.create_session("long", "cli")
    db.append_messages("long", ({"role": "user", "content": f"{n} " + "x" * 40_000} for n in range(3_000)))
    script = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from hermes_state.transfer import archive_import, archive_write\n"
        "from hermes_state.session_db import SessionDB\n"
        "source, file = SessionDB(Path(sys.argv[1])), Path(sys.argv[2])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "archive_write.export(source, file)\n"
        "report = archive_import.import_archive(SessionDB(Path(sys.argv[3])), file)\n"
        "assert report.messages == 3000\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    paths = [str(db.engine.where), str(tmp_path / "long.zip"), str(tmp_path / "target.db")]
    ended = subprocess.run(
        [sys.executable, "-c", script, *paths], capture_output=True, text=True, check=True, timeout=120, env=os.environ
    )
    assert int(ended.stdout) < 90, "120 MB of messages must not need as much memory"


# -- whole stores ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ENGINES)
def test_a_whole_store_comes_back_row_by_row(db: SessionDB, there: EngineName, other: Other, tmp_path: Path) -> None:
    fill_every_table(db)
    copy_all.export_store(db, tmp_path / "store.zip")
    target = other(there)
    copy_all.restore_store(target, tmp_path / "store.zip")
    assert everything(target) == everything(db)
    last = target.engine.read(lambda conn: tables.last_number(conn, tables.named("messages")))
    assert last == 1_003, "numbers go on where the store stopped"


def test_a_whole_store_goes_into_an_empty_one_only(db: SessionDB, tmp_path: Path, story: Path) -> None:
    tell_story(db)
    copy_all.export_store(db, tmp_path / "store.zip")
    before = everything(db)
    with pytest.raises(StateError, match="is not empty"):
        copy_all.restore_store(db, tmp_path / "store.zip")
    with pytest.raises(ArchiveRefused, match="backup of a whole store"):
        archive_import.import_archive(db, tmp_path / "store.zip")
    with pytest.raises(ArchiveRefused, match="conversations, not a whole store"):
        copy_all.restore_store(db, story)
    assert everything(db) == before


def test_the_page_on_the_format_names_every_file_and_column(story: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "contributors" / "archive-format.md"
    text = page.read_text(encoding="utf-8")
    with archive_read.ArchiveFile(story, Limits()) as source:
        files = [name.removesuffix(".jsonl") for name in source.manifest["files"]]
    assert len(files) == 7
    for name in files:
        line = next((line for line in text.splitlines() if line.startswith(f"| `{name}.jsonl`")), "")
        said = set(line.split("`")[3::2])
        wanted = set(tables.named(name).names) - ({"id"} if name == "messages" else set())
        assert wanted <= said, f"{name}: the page does not name {sorted(wanted - said)}"


def test_a_verified_archive_says_what_it_holds(story: Path) -> None:
    with archive_read.ArchiveFile(story, Limits()) as source:
        source.verify()
        assert (source.scope, source.rows_in("sessions"), source.rows_in("messages")) == ("conversations", 4, 9)
