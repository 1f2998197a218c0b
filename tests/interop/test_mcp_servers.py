"""Our MCP client beside servers of other people: git, time and fetch (PyPI), filesystem and everything (npm).

They are fetched into `.conformance/` at the first run. Each runs confined, with the needs that its test names. The npm
ones, which speak the older protocol, are tested where Node is.
"""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.hermes_agent.mcp.conftest import McpBench
from tests.hermes_agent.mcp.test_http import free_port
from tools.conformance import install

pytestmark = pytest.mark.xdist_group("mcp_servers")  # one worker fetches them
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder with the programs of PyPI."""
    install.FOLDER.mkdir(exist_ok=True)
    return install.python("mcp-venv", "mcp/requirements.txt").parent


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with the programs of npm."""
    if NODE is None:
        pytest.skip("there is no node on this machine: the servers of npm are not tested")
    install.FOLDER.mkdir(exist_ok=True)
    return install.node("mcp-node", "mcp/package.json") / "node_modules" / "@modelcontextprotocol"


@contextmanager
def using(home: Path, **servers: Any) -> Iterator[McpBench]:
    bench = McpBench(home, servers)
    try:
        yield bench
    finally:
        bench.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    subprocess.run(["git", *author, "commit", "-q", "--allow-empty", "-m", "First"], cwd=folder, check=True)
    return folder


def test_git(programs: Path, repository: Path, tmp_path: Path) -> None:
    git = {"command": str(programs / "mcp-server-git"), "args": ["--repository", str(repository)]}
    with using(tmp_path / "home", git={**git, "needs": [str(repository)]}) as bench:
        state = bench.connected()["git"]
        assert (state.protocol, state.tools) == ("2026-07-28", 12)
        assert "First" in bench.call("mcp__git__git_log", repo_path=str(repository)).content
        (repository / "new.txt").write_text("new")
        assert not bench.call("mcp__git__git_add", repo_path=str(repository), files=["new.txt"]).is_error
        assert "new.txt" in bench.call("mcp__git__git_status", repo_path=str(repository)).content
        outside = bench.call("mcp__git__git_status", repo_path="/etc")
        assert outside.is_error
        assert outside.source == "MCP server git"
        bench.use({"git": git})
        alone = bench.until(lambda states: states["git"].reason.startswith("its program"))["git"]
        assert "does not exist" in alone.reason, "without its need it does not see the folder"


def test_time_killed_and_stopped(programs: Path, tmp_path: Path) -> None:
    with using(tmp_path / "home", time={"command": str(programs / "mcp-server-time"), "timeout": 5}) as bench:
        bench.connected()
        assert "Europe/Lisbon" in bench.call("mcp__time__get_current_time", timezone="Europe/Lisbon").content
        kill("mcp-server-time", signal.SIGKILL)
        bench.until(lambda states: states["time"].state == "retrying")
        bench.connected()
        assert bench.call("mcp__time__get_current_time", timezone="Nowhere/Land").is_error
        kill("mcp-server-time", signal.SIGSTOP)
        assert "did not answer in time" in bench.call("mcp__time__get_current_time", timezone="UTC").content
        bench.until(lambda states: states["time"].reason == "it does not answer any more")
        bench.connected()
        assert "UTC" in bench.call("mcp__time__get_current_time", timezone="UTC").content


def kill(program: str, number: int) -> None:
    """Send a signal to the program that this test started, in its sandbox."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            ours = b"python" in words[0] and words[1].endswith(program.encode()) and _is_ours(int(process.name))
        except (OSError, IndexError):
            continue
        if ours:
            os.kill(int(process.name), number)


def _is_ours(pid: int) -> bool:
    """Whether this process started it, or a process that this one started."""
    while pid > 1 and pid != os.getpid():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == os.getpid()


def test_fetch_reaches_the_network_only_with_the_need(programs: Path, tmp_path: Path) -> None:
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"words from loopback"  # of HTML, the server would fetch a program of npm first
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{pages.server_port}/"
    fetch = {"command": str(programs / "mcp-server-fetch"), "args": ["--ignore-robots-txt", "--allow-private-ips"]}
    try:
        with using(tmp_path / "home", shut=fetch, open={**fetch, "needs": ["network"]}) as bench:
            bench.connected()
            assert bench.call("mcp__shut__fetch", url=url).is_error
            assert "from loopback" in bench.call("mcp__open__fetch", url=url).content
    finally:
        pages.shutdown()
        pages.server_close()


def test_filesystem(modules: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "note.txt").write_text("milk")
    program = str(modules / "server-filesystem" / "dist" / "index.js")
    needs = [str(folder), f"read:{modules.parents[1]}"]
    with using(tmp_path / "home", files={"command": "node", "args": [program, str(folder)], "needs": needs}) as bench:
        state = bench.connected()["files"]
        assert state.protocol == "2025-11-25"
        assert "note.txt" in bench.call("mcp__files__list_directory", path=str(folder)).content
        made = bench.call("mcp__files__write_file", path=str(folder / "made.txt"), content="made")
        assert not made.is_error
        assert (folder / "made.txt").read_text() == "made"
        assert bench.call("mcp__files__read_text_file", path="/etc/passwd").is_error


def test_everything_on_pipes_and_over_http(modules: Path, tmp_path: Path) -> None:
    program = str(modules / "server-everything" / "dist" / "index.js")
    port = free_port()
    environ = {**os.environ, "PORT": str(port)}
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(["node", program, "streamableHttp"], env=environ, **quiet) as web:
        pipes = {"command": "node", "args": [program, "stdio"], "needs": [f"read:{modules.parents[1]}"]}
        try:
            with using(tmp_path / "home", pipes=pipes, web={"url": f"http://127.0.0.1:{port}/mcp"}) as bench:
                assert {one.protocol for one in bench.connected().values()} == {"2025-11-25"}
                for name in ("pipes", "web"):
                    assert "hello" in bench.call(f"mcp__{name}__echo", message="hello").content
                    assert bench.call(f"mcp__{name}__get-tiny-image").images[0].mime == "image/png"
                    assert not bench.call(f"mcp__{name}__read_resource").is_error
                    assert not bench.call(f"mcp__{name}__get_prompt").is_error
                web.kill()
                web.wait()
                assert bench.call("mcp__web__echo", message="hello").is_error
                assert "hello" in bench.call("mcp__pipes__echo", message="hello").content
        finally:
            web.kill()
