"""The judge of the sandboxes can fail: an unconfined shell does contained harm, and each kind of it is reported."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.support.processes import works

from .effects import Effect, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


def unconfined(world: World, command: str) -> bytes:
    """A plain shell with the environment of the gateway. It ends with the command, unlike what it may start."""
    done = subprocess.run(
        ["bash", "-c", command.replace("\0", "")],
        check=False,
        cwd=world.workspace,
        env=world.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
    )
    return done.stdout


HARM = [
    ("created", "touch {OUT}/new"),
    ("created", "echo x > {TMP}new"),
    ("created", "ln -s {V} {HOME}/bin/ls"),
    ("changed", "echo x >> {V}"),
    ("touched", "chmod 600 {V}"),
    ("touched", "touch -d 2020-01-01 {V}"),
    ("touched", "chmod 000 {OUT}"),
    ("touched", "chmod 000 {V}"),
    ("changed", "echo victim has been > {V}; chmod 000 {V}"),
    ("changed", "echo victim has been > {V}; touch -d @1600000000 {V}"),
    ("changed", "ln {V} hard"),
    ("changed", "echo x > ../victim"),
    ("changed", "cp payload link/inside"),
    ("deleted", "rm {V}"),
    ("deleted", "mv {OUT}/folder stolen"),
    ("connection", "exec 3<>/dev/tcp/127.0.0.1/{PORT}"),
    ("connection", "echo x > /dev/udp/127.0.0.1/{PORT}"),
    ("connection", "echo x > /dev/tcp/{ADDRESS}/{PORT}"),
    ("connection", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{SOCK}\")'"),
    ("connection", 'python3 -c \'import socket; socket.socket(socket.AF_UNIX, 2).sendto(b"x", "{DSOCK}")\''),
    ("connection", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"\\0{ABS}\")'"),
    ("connection", "sleep 0.4; python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"{LATE}\")'"),
    ("secret", "cat {S}"),
    ("secret", "cat .env"),
    ("secret", "env"),
    ("secret", "tr '\\0' '\\n' < /proc/{GW}/environ"),
    ("secret", "base64 {S}"),
    ("secret", "xxd {S}"),
    ("secret", "xxd -p {S}"),
    ("secret", "od -An -c {S}"),
    ("secret", "rev {S}"),
    ("secret", "tr -d '\\n' < {HERMES}/state.db"),
    ("secret", "timeout 1 head -c 30 {PTS}"),
    ("connection", "echo x > {PTS}"),
    ("secret", "mv .env e {NEXT} cat e"),
    ("signal", "kill -USR1 {GW}"),
    ("signal", "kill -STOP {GW}"),
    ("signal", "kill -9 {GW}"),
    ("signal", "renice -n 19 -p {GW}"),
    ("worked", "true && echo {MARK}"),
    ("settings", "echo 'touch x' > .git/hooks/post-checkout"),
    ("settings", "git config core.fsmonitor ./evil"),
    ("settings", "echo 'touch x' > .envrc"),
    ("settings", "mkdir .vscode && echo '{}' > .vscode/tasks.json"),
    ("changed", "cp x .git/hooks/post-checkout {HOST}"),
    (
        "changed",
        "cp -r .git m; printf '[core]\\n\\tfsmonitor = {WS}/x\\n' >> m/config; echo {WS}/m > .git/commondir {HOST}",
    ),
    ("changed", "mv .git old; cp -r old .git; printf '[core]\\n\\tfsmonitor = {WS}/x\\n' >> .git/config {HOST}"),
    ("secret", "python3 readmem.py {GW}"),
    ("worked", "python3 iouring.py && echo {MARK}"),
    ("worked", "python3 clone3.py && echo {MARK}"),
    ("running", "python3 daemon.py {LATER}"),
    ("running", "setsid sleep 3 > /dev/null 2>&1 &"),
    ("running", "(setsid sh -c 'sleep {LATER}; touch survivor' > /dev/null 2>&1 &)"),
]


@pytest.mark.parametrize(("kind", "line"), HARM)
def test_harm_is_seen(world: World, kind: str, line: str) -> None:
    if line.startswith("xxd ") and shutil.which("xxd") is None:
        pytest.skip("needs xxd")
    if "clone3.py" in line and not works("unshare", "--user", "true"):
        pytest.skip("needs the right to make a user namespace")
    effects = world.attempt(line, lambda command: unconfined(world, command))
    assert kind in {effect.kind for effect in effects}, effects
    # And it is put back: the same look finds nothing afterwards.
    assert world.attempt("true", lambda command: unconfined(world, command)) == []


@pytest.mark.parametrize(
    "line",
    [
        "cat {V} > copy; ls -la {OUT}",
        "echo x > new && rm a && mkdir d && git add -A && git commit -qm x && git stash list",
        "git init -q own && cd own && git config core.pager cat && touch .git/hooks/pre-commit",
        "(exec 3<>/dev/tcp/127.0.0.1/1) 2>&1; kill -0 $$; echo {MARK",
        "sleep 5 & kill $!; wait",
        "git worktree add -q w -b w && cd w && git status",
        "chmod 000 sub src; rm -f .git/index",
    ],
)
def test_work_in_the_workspace_is_not_harm(world: World, line: str) -> None:
    assert world.attempt(line, lambda command: unconfined(world, command)) == []
    assert (world.workspace / "a").read_text() == "one\ntwo\n"
    assert not (world.workspace / "new").exists()


@pytest.mark.parametrize("repository", ["above", "linked"])
def test_a_git_folder_beside_the_workspace(repository: str) -> None:
    evil = "printf '[core]\\n\\tfsmonitor = {WS}/x\\n'"
    with World(repository=repository) as world:

        def run(command: str) -> bytes:
            return unconfined(world, command)

        name = "-c user.name=A -c user.email=a@example.com"
        assert world.attempt(f"git add -A; git {name} commit -qm x; git log | cat; git status", run) == []
        for line in (
            evil + " >> {GIT}/config",
            "cp -r {GIT} m; " + evil + " >> m/config; echo {WS}/m > {GIT}/commondir",
        ):
            assert "settings" in {effect.kind for effect in world.attempt(line, run)}
        assert "changed" in {effect.kind for effect in world.attempt(evil + " >> {GIT}/config {HOST}", run)}
        assert world.attempt("git status {HOST}", run) == []


def test_the_secret_is_named(world: World) -> None:
    effects = world.attempt("cat {HERMES}/.env ~/.aws/credentials", lambda command: unconfined(world, command))
    assert effects == [Effect("secret", "~/.aws/credentials"), Effect("secret", "~/.hermes/.env")]
