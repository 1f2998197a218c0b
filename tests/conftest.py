"""What every test can ask for. See README.md beside this file.

`db` is an open store with a `clock` that the test moves; `pytest_generate_tests` says on which engine. Every test runs
in a throw-away home, and a test that so much as looks into `~/.hermes` fails.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes import bubblewrap_works
from tests.support.stores import ENGINES, EngineName, TestStores, scratch

from hermes_config.limits import Limits
from hermes_config.logs import LogFile
from hermes_state.session_db import SessionDB
from hermes_testing.clock import Clock

_real_home = str(Path.home() / ".hermes")
_forbidden: list[str] = []
_touched: list[str] = []
_STORE_TESTS = ("hermes_state", "multiprocess", "chaos")
_SLOW_FOLDERS = ("chaos", "docs", "interop", "multiprocess")


def _watch(event: str, args: tuple[object, ...]) -> None:
    if event == "open" and isinstance(args[0], str) and args[0].startswith(tuple(_forbidden)):
        _touched.append(args[0])


sys.addaudithook(_watch)

# Tests start some thousand processes: each would compile all of Hermes again, and each run all tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts what it runs in the background with Ctrl-C switched off, and children inherit that. Tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="the long forms of the chaos tests")
    parser.addoption("--seed", type=int, help="of what the chaos tests draw; else another one each time, and printed")
    parser.addoption("--quick", action="store_true", help="unit tests on SQLite: no file that is marked slow")


def pytest_configure(config: pytest.Config) -> None:
    """Draw the run's seed; a worker of xdist is told it."""
    given = getattr(config, "workerinput", {}).get("seed", config.option.seed)
    config.option.seed = random.SystemRandom().randrange(1 << 32) if given is None else given


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["seed"] = node.config.option.seed


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--quick`, leave out whole folders of slow tests, and files that say `pytest.mark.slow`, unread."""
    if not config.getoption("--quick"):
        return None
    if collection_path.is_dir():
        return (collection_path.parent == Path(__file__).parent and collection_path.name in _SLOW_FOLDERS) or None
    return b"pytest.mark.slow" in collection_path.read_bytes() or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes or wait for clocks come first: what ends a run are short tests, for all workers."""
    items.sort(key=_is_quick)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where bubblewrap cannot work (most containers), leave out its tests; those of Landlock and of neither run."""
    parameters = item.callspec.id.split("-") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    needed = "bubblewrap" in parameters or item.get_closest_marker("needs_bubblewrap") is not None
    if needed and not bubblewrap_works():
        pytest.skip("needs bubblewrap, which the kernel or the container keeps from working")


def _is_quick(item: pytest.Item) -> bool:
    slow = any(Path(__file__).parent / folder in item.path.parents for folder in _SLOW_FOLDERS)
    return not slow and item.get_closest_marker("slow") is None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the dice were, when something failed or was swept, and how many kill points there were."""
    passed = terminalreporter.getreports("passed")
    sweeps = sorted(str(value) for report in passed for name, value in report.user_properties if name == "kill points")
    if sweeps:
        terminalreporter.section("kill points, each survived")
        terminalreporter.write_line("\n".join(sweeps))
    if sweeps or terminalreporter.getreports("failed"):
        terminalreporter.write_line(f"seed {terminalreporter.config.option.seed}: --seed repeats what was drawn")


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> int:
    """What this test draws its dice from; printed if it fails."""
    drawn: int = pytestconfig.option.seed
    print(f"seed {drawn}")
    return drawn


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A throw-away `HERMES_HOME`, an environment without `HERMES_*`, and a guard around `~/.hermes`."""
    for name in [name for name in os.environ if name.startswith("HERMES_") and name != "HERMES_TEST_POSTGRES"]:
        monkeypatch.delenv(name)
    user, folder = tmp_path / "user", tmp_path / "home"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)  # units of systemd belong to that user, too
    monkeypatch.setenv("HERMES_HOME", str(folder))
    default = str(user / ".hermes")
    _forbidden[:] = [default, _real_home]
    _touched.clear()
    yield folder
    _forbidden.clear()
    assert not _touched, f"the test opened {_touched[0]}: nothing may touch ~/.hermes"
    assert not os.path.lexists(default), "the test made ~/.hermes: nothing may touch it"


@pytest.fixture(autouse=True)
def log_handlers() -> Iterator[None]:
    """A command that is run in this process opens the log for the rest of it; the next test must not write there."""
    ours, level = logging.getLogger("hermes"), logging.getLogger("hermes").level
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) in (LogFile, logging.StreamHandler):  # pytest's own are of other kinds
            root.removeHandler(handler)
            handler.close()
    ours.setLevel(level)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="session")
def stores() -> Iterator[TestStores]:
    """Fresh addresses on both engines; one PostgreSQL server for each test process, started at first need."""
    with tempfile.TemporaryDirectory(prefix="hermes-stores-", dir=scratch()) as folder:
        made = TestStores(Path(folder))
        yield made
        made.close()


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long value would be the name of its test, a hundred thousand characters of it, sent to and fro by xdist."""
    return f"{val[:40]}… {len(val)}" if isinstance(val, str | bytes) and len(val) > 200 else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Where the store itself is tested, and in files that say `pytestmark = pytest.mark.both_engines`, each test that
    asks for a store runs on SQLite and on PostgreSQL; elsewhere on SQLite."""
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "engine" not in metafunc.fixturenames or "engine" in named:
        return
    folder = metafunc.definition.path.relative_to(metafunc.config.rootpath / "tests").parts[0]
    both = folder in _STORE_TESTS or metafunc.definition.get_closest_marker("both_engines")
    if metafunc.config.getoption("--quick"):
        both = False
    metafunc.parametrize("engine", ENGINES if both else ENGINES[:1], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> EngineName:
    """The engine under test."""
    name: EngineName = request.param
    return name


@pytest.fixture
def address(engine: EngineName, stores: TestStores) -> Iterator[str | Path]:
    """Where a fresh store of the engine under test lies; nobody has it open."""
    fresh = stores.fresh(engine)
    yield fresh
    stores.discard(fresh)


OpenStore = Callable[..., SessionDB]


@pytest.fixture
def make_db(address: str | Path, clock: Clock) -> Iterator[OpenStore]:
    """`make_db()` opens the test's store (again: the same rows); what is still open at the end is closed."""
    opened: list[SessionDB] = []

    def make(*, read_only: bool = False, limits: Limits | None = None) -> SessionDB:
        db = SessionDB(address, read_only, clock=clock, limits=limits)
        opened.append(db)
        return db

    yield make
    for db in opened:
        db.close()


@pytest.fixture
def db(make_db: OpenStore) -> SessionDB:
    return make_db()


@pytest.fixture
def reopen(make_db: OpenStore) -> Callable[[SessionDB], SessionDB]:
    """`db = reopen(db)`: close the store and open it again, as a restart does."""

    def again(db: SessionDB) -> SessionDB:
        db.close()
        return make_db()

    return again
