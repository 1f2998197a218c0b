"""The executor: what holds a command, what a permit opens, and that nothing ever falls back to the host."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hermes_agent.execution import base, bubblewrap, executor, supervisor
from hermes_agent.execution.base import Permit, SandboxOpening, ShellCommand
from hermes_agent.execution.executor import Executor
from hermes_config import protected_files
from hermes_config.config import of as config_of
from hermes_config.limits import DEFAULTS

pytestmark = pytest.mark.slow

SANDBOXES = ("bubblewrap", "landlock")


class Ended(NamedTuple):
    code: int
    output: str
    trouble: str
    undone: list[str]


class World:
    """A home, a workspace and an executor. It lies outside /tmp, which a confined command does not share anyway."""

    def __init__(self, root: Path, sandbox: str, **limits: int) -> None:
        self.root, self.sandbox = root, sandbox
        self.home, self.workspace, self.person = root / "hermes", root / "person" / "project", root / "person"
        for folder in (self.home, self.workspace):
            folder.mkdir(parents=True, exist_ok=True)
        self.config: dict[str, Any] = {"executor": sandbox}
        self.limits = DEFAULTS.changed(**limits)
        self.path = os.environ["PATH"]

    @property
    def environ(self) -> Mapping[str, str]:
        return {"PATH": self.path, "HOME": str(self.person), "LANG": "C.UTF-8"}

    def command(self, text: str) -> ShellCommand:
        return ShellCommand(("bash", "-c", text), self.workspace, self.environ, text)

    def run(self, text: str, *, permit: Permit | None = None, seconds: float = 30) -> Ended:
        async def go() -> Ended:
            out = bytearray()
            held = Executor(self.home, config_of(self.home, self.config), self.limits)
            async with asyncio.timeout(seconds):
                async with held.run(
                    self.command(text), workspace=self.workspace, on_output=out.extend, permit=permit, grace=0.5
                ) as child:
                    code = await child.exited()
                    await child.drained(0.5)
            return Ended(code, out.decode("utf-8", "replace"), child.trouble, child.undone)

        return asyncio.run(go())

    def permit(self, text: str, opening: SandboxOpening) -> Permit:
        return Permit(base.digest(text, self.workspace, opening), opening)


@pytest.fixture(params=SANDBOXES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    root = Path(f"/var/tmp/hermes-test-{os.getpid()}-{time.monotonic_ns()}")
    root.mkdir(mode=0o755)
    yield World(root, request.param)
    shutil.rmtree(root)


def test_a_command_works_in_its_workspace_and_nowhere_else(world: World) -> None:
    outside = world.root / "outside"
    outside.mkdir()
    ended = world.run(f"echo in > here && cat here; echo out > {outside}/x; mkdir {outside}/y; rm -rf {outside}")
    assert ended.output.startswith("in\n")
    assert (world.workspace / "here").read_text() == "in\n"
    assert list(outside.iterdir()) == []


def test_a_workspace_below_var_tmp_leaves_the_rest_of_it_private_and_writable(world: World) -> None:
    if world.sandbox == "landlock":
        pytest.skip("Landlock makes no folder private: commands have TMPDIR")
    ended = world.run("echo in > here; echo out > /var/tmp/hermes-test-file; cat here /var/tmp/hermes-test-file")
    assert ended.output == "in\nout\n"
    assert not Path("/var/tmp/hermes-test-file").exists()


def test_secrets_are_hidden_wherever_they_lie(world: World) -> None:
    for name in (".env", "sub/prod.env", "sub/deep/id_rsa", ".ssh/config"):
        path = world.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("S3CRET-OF-TEST")
    (world.person / ".ssh").mkdir()
    (world.person / ".ssh" / "id_rsa").write_text("S3CRET-OF-TEST")
    (world.home / ".env").write_text("S3CRET-OF-TEST")
    (world.workspace / "plain.txt").write_text("plain")
    tries = (
        f"cat .env sub/prod.env sub/deep/id_rsa .ssh/config ~/.ssh/id_rsa {world.home}/.env plain.txt; grep -r S3C ."
    )
    ended = world.run(f"{tries}; cp -r . $TMPDIR/copy; grep -r S3CRET-OF $TMPDIR; mv sub other; cat other/prod.env")
    assert "S3CRET-OF-TEST" not in ended.output
    assert "plain" in ended.output
    again = world.run("cat */prod.env */deep/id_rsa; find . -type f -exec cat {} +")
    assert "S3CRET-OF-TEST" not in again.output


def test_files_of_the_machine_that_only_root_reads_are_hidden(world: World) -> None:
    ended = world.run(r"find /etc -type f ! -perm -004 -exec head -c 1 {} \; 2>/dev/null | wc -c")
    assert ended.output.strip() == "0"


@pytest.mark.parametrize("key", ["https://ghp_abc@github.com/", "ssh://a:b@host/"])
def test_git_settings_that_hold_a_key_are_hidden(world: World, key: str) -> None:
    settings = world.person / ".gitconfig"
    settings.write_text("[user]\n\tname = Ada\n")
    assert world.run("git config --global user.name").output.strip() == "Ada"
    settings.write_text(f'[url "{key}"]\n\tinsteadOf = x\n')
    assert key not in world.run(f"cat {settings}; git config --global --list").output


def test_a_secret_that_the_owner_names_is_hidden_too(world: World) -> None:
    (world.workspace / "notes.private").write_text("S3CRET-OF-TEST")
    assert "S3CRET-OF-TEST" in world.run("cat notes.private").output
    world.config["sandbox"] = {"secrets": ["*.private"]}
    assert "S3CRET-OF-TEST" not in world.run("cat notes.private").output


def test_configured_folders_can_be_read_or_written(world: World) -> None:
    read, write = world.root / "read", world.root / "write"
    for folder in (read, write):
        folder.mkdir()
        (folder / "file").write_text("there")
    assert "there" not in world.run(f"cat {read}/file {write}/file").output
    world.config["sandbox"] = {"read": [str(read)], "write": [str(write)]}
    ended = world.run(f"cat {read}/file; echo x > {read}/new; echo x > {write}/new")
    assert ended.output.startswith("there")
    assert not (read / "new").exists() and (write / "new").exists()


def test_no_socket_of_the_machine_can_be_reached(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        path = world.person / "agent.sock"
        unix.bind(str(path))
        unix.listen()
        for listener in (tcp, unix):
            listener.settimeout(0.3)
        code = textwrap.dedent(f"""
            import socket
            for family, address in ((2, ("127.0.0.1", {tcp.getsockname()[1]})), (1, {str(path)!r})):
                try:
                    socket.socket(family).connect(address)
                    print("CONNECTED", address)
                except OSError as error:
                    print(type(error).__name__)
        """)
        (world.workspace / "connect.py").write_text(code)
        ended = world.run("python3 connect.py")
        assert "CONNECTED" not in ended.output and ended.output.count("\n") >= 2
        for listener in (tcp, unix):
            with pytest.raises(TimeoutError):
                listener.accept()


@pytest.mark.parametrize("world", ["bubblewrap"], indirect=True)
def test_each_command_has_a_loopback_of_its_own(world: World) -> None:
    code = """
        import pathlib, socket, time
        with socket.create_server(("127.0.0.1", 47613)) as server, socket.create_connection(server.getsockname()):
            pathlib.Path("listening").touch()
            while not pathlib.Path("over").exists():
                time.sleep(0.01)
    """
    (world.workspace / "serve.py").write_text(textwrap.dedent(code))
    with ThreadPoolExecutor() as threads:
        server = threads.submit(world.run, "python3 serve.py")
        ended = world.run(
            "while [ ! -e listening ]; do sleep 0.01; done; echo x > /dev/tcp/127.0.0.1/47613; touch over"
        )
        assert "Connection refused" in ended.output
        assert server.result().code == 0, server.result()


def test_it_has_no_rights_beyond_its_own(world: World) -> None:
    (world.workspace / "tries.py").write_text(
        textwrap.dedent("""
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        def tried(name, number, *arguments):
            done = libc.syscall(number, *arguments)
            print(name, "worked" if done >= 0 else "refused")
        tried("io_uring", 425, 8, ctypes.create_string_buffer(120))
        tried("ptrace", 101, 16, 1, 0, 0)
        tried("unshare", 272, 0x10000000)
        tried("keyctl", 250, 0, -3, 1)
        tried("bpf", 321, 0, ctypes.create_string_buffer(128), 128)
        tried("userfaultfd", 323, 1)
        open("program", "w").close()
        try:
            os.chmod("program", 0o4755)
            print("setuid worked")
        except OSError:
            print("setuid refused")
        """)
    )
    ended = world.run("python3 tries.py; sh -c 'umount /etc/shadow; mount -t tmpfs x /usr; chroot / true' 2>&1")
    assert "worked" not in ended.output and ended.output.count("refused") == 7, ended.output


def test_processes_of_the_machine_get_no_signal(world: World) -> None:
    with subprocess.Popen(["sleep", "60"]) as victim:
        try:
            world.run(f"kill -9 {victim.pid}; kill -9 -{victim.pid}; pkill -9 -x sleep; true")
            assert victim.poll() is None
        finally:
            victim.kill()


@pytest.mark.parametrize("world", ["bubblewrap"], indirect=True)  # the known gap of Landlock
def test_file_modes_outside_are_out_of_reach_behind_bubblewrap(world: World) -> None:
    outside = world.person / "file"
    outside.touch(mode=0o600)
    world.run(f"chmod 777 {outside}; touch -d 2001-01-01 {outside}")
    assert outside.stat().st_mode & 0o777 == 0o600 and outside.stat().st_mtime > 1e9 + 1e7


@pytest.mark.parametrize("world", ["bubblewrap"], indirect=True)
def test_devices_can_be_used_and_not_changed_also_by_root(world: World) -> None:
    device = Path("/dev/full")
    before = device.stat()
    try:
        said = world.run(
            f"chmod 640 {device}; touch -d 2001-01-01 {device}; echo x > {device}; echo x > /dev/null && echo fine"
        )
        after = device.stat()
    finally:
        if os.geteuid() == 0:
            device.chmod(before.st_mode & 0o777)
            os.utime(device, (before.st_atime, before.st_mtime))
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)
    assert "No space left" in said.output and said.output.endswith("fine\n")


# -- what other programs run -------------------------------------------------------------------------------------------


def _repository(world: World) -> Path:
    subprocess.run(["git", "init", "-q", str(world.workspace)], check=True)
    return world.workspace / ".git"


@pytest.mark.parametrize(
    "line",
    [
        "echo evil > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout",
        "git config core.fsmonitor ./evil",
        "printf '[core]\\n\\tfsmonitor = ./evil\\n' >> .git/config",
        "mv .git old; cp -r old .git; printf '[core]\\n\\tfsmonitor = ./evil\\n' >> .git/config",
        "rm -f .git/config; ln -s /etc/passwd .git/config",
        "echo evil > .envrc",
        "mkdir .vscode; echo '{}' > .vscode/tasks.json",
        "mkdir -p sub/.vscode; echo '{}' > sub/.vscode/tasks.json",
        "echo evil > .npmrc",
        "mkdir mine; echo '{}' > mine/tasks.json; ln -s mine .vscode",
        "mv kept old; mkdir -p other/.vscode; echo evil > other/.vscode/tasks.json; ln -s other kept",
        "rm -rf kept/.vscode; mkdir mine; echo evil > mine/tasks.json; ln -s ../mine kept/.vscode",
    ],
)
def test_files_that_other_programs_run_stay_as_they_were(world: World, line: str) -> None:
    git = _repository(world)
    (world.workspace / "sub").mkdir()
    kept = world.workspace / "kept/.vscode/tasks.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{}")
    before = (git / "config").read_bytes()
    world.run(line)
    assert (git / "config").read_bytes() == before and not (git / "config").is_symlink()
    assert all(hook.name.endswith((".sample", ".set-aside")) for hook in (git / "hooks").iterdir())
    for name in (".envrc", ".vscode", "sub/.vscode", ".npmrc"):
        assert not os.path.lexists(world.workspace / name)
    assert not kept.exists() or kept.read_text() == "{}"


def test_files_of_the_person_are_left_alone(world: World) -> None:
    _repository(world)
    texts = {
        ".envrc": "use flake",
        ".npmrc": "engine-strict=true",
        ".vscode/tasks.json": "{}",
        ".husky/pre-commit": "x",
    }
    for name, text in texts.items():
        path = world.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for _ in range(2):
        assert world.run("true").undone == []
    assert {name: (world.workspace / name).read_text() for name in texts} == texts


def test_two_commands_do_not_bring_out_what_one_cannot(world: World) -> None:
    git = _repository(world)
    before = (git / "config").read_bytes()
    (world.workspace / ".env").write_text("S3CRET-OF-TEST")
    world.run("mv .env e; mv .git old; touch .env")
    ended = world.run("cat e .env* */e; cp -r old .git; printf '[core]\\n\\tfsmonitor = ./x\\n' >> .git/config")
    assert "S3CRET-OF-TEST" not in ended.output
    assert (git / "config").read_bytes() == before


def test_a_repository_within_another_brings_no_programs(world: World) -> None:
    _repository(world)
    line = "git init -q s && git -C s config core.fsmonitor ./x && echo x > s/.git/hooks/post-index-change"
    world.run(f"{line}; git -C s config user.name a; mkdir -p w && git init -q --bare w/b.git")
    config = world.workspace / "s/.git/config"
    assert not config.exists() or b"fsmonitor" not in config.read_bytes()
    assert not (world.workspace / "s/.git/hooks/post-index-change").exists()


@pytest.mark.parametrize("at", ["repository", "home"])
def test_hooks_that_settings_name_are_not_made_by_a_command(world: World, at: str) -> None:
    """Also where the folder that a person's settings name did not exist yet."""
    git = _repository(world)
    file = git / "config" if at == "repository" else world.person / ".gitconfig"
    with file.open("a") as settings:
        settings.write("[core]\n\thooksPath = tools/hooks\n")
    ended = world.run("mkdir -p tools/hooks && echo ./evil > tools/hooks/pre-commit; ls tools/hooks")
    assert ended.output.strip() == "pre-commit"
    assert not (world.workspace / "tools/hooks").exists()
    assert (world.workspace / "tools/hooks.set-aside/pre-commit").exists()
    assert any("tools/hooks" in line for line in ended.undone)


def test_a_submodule_that_a_command_adds_works(world: World) -> None:
    config = _repository(world) / "config"
    ended = world.run(
        "git init -q lib; for at in . lib; do git -C $at -c user.name=a -c user.email=b commit -q --allow-empty -m 1;"
        " done; git -c protocol.file.allow=always submodule --quiet add $PWD/lib sub; git worktree add -q tree -b tree"
    )
    assert all(line.startswith(f"{config} ") for line in ended.undone), "only the settings of the outer repository"
    ended = world.run("git -C sub log --oneline | wc -l; git -C tree status --short")
    assert ended.output.split() == ["1"], ended.output


def _within(world: World, folder: str) -> Path:
    """Make the workspace a folder of a larger repository; the repository's git folder."""
    subprocess.run(["git", "init", "-q", str(world.workspace)], check=True)
    git = world.workspace / ".git"
    world.workspace = world.workspace / folder
    world.workspace.mkdir()
    return git


def test_a_repository_around_the_workspace_keeps_its_settings(world: World) -> None:
    git = _within(world, "part")
    before = (git / "config").read_bytes()
    lines = (
        "printf '[core]\\n\\tfsmonitor = ./x\\n' >> ../.git/config",
        "echo x > ../.git/hooks/post-checkout",
        "cp -r ../.git m; echo $PWD/m > ../.git/commondir",
        "mv ../.git/config c; cp c ../.git/config; echo >> ../.git/config",
    )
    for line in lines:
        world.run(line)
    assert (git / "config").read_bytes() == before and not (git / "commondir").exists()
    assert all(hook.name.endswith((".sample", ".set-aside")) for hook in (git / "hooks").iterdir())
    works = world.run("git -c user.name=a -c user.email=b commit -q --allow-empty -m one && git log --oneline | wc -l")
    assert works.output.strip() == "1" if world.sandbox == "bubblewrap" else works.code != 0, (
        "with Landlock it is read-only"
    )


def test_a_repository_that_a_command_makes_keeps_its_settings_but_no_programs(world: World) -> None:
    """A shell prompt runs git there as soon as somebody enters it."""
    made = "git init -q new && cd new && git config user.email a@b && git config user.name a && echo x > f"
    ended = world.run(f"{made} && git add f && git commit -qm one && git log --oneline | wc -l")
    assert ended == (0, "1\n", "", [])
    trap = "git init -q trap && cd trap && git config core.fsmonitor ./x && echo '#!/bin/sh' > .git/hooks/pre-commit"
    ended = world.run(f"{trap}; mkdir ../elsewhere; cp -r .git ../copy; echo 'gitdir: ../copy' > ../elsewhere/.git")
    folders = [world.workspace / "trap/.git", world.workspace / "copy"]
    assert [sorted(path.name for path in git.glob("*.set-aside")) for git in folders] == [
        ["config.set-aside", "hooks.set-aside"]
    ] * 2
    assert not [git / name for git in folders for name in ("config", "hooks") if (git / name).exists()]
    assert len(ended.undone) == 4
    # Without a repository at its root, the workspace becomes one.
    world.run("git init -q; git config core.hooksPath x; git config alias.st '!x'")
    assert (world.workspace / ".git/config.set-aside").exists()


def test_a_link_that_a_command_puts_into_a_git_folder_is_gone(world: World) -> None:
    """Git writes through links: its log of a branch would be appended to the file outside."""
    git = _repository(world)
    outside = world.root / "outside"
    outside.write_text("mine")
    (git / "mine").symlink_to(outside)
    ended = world.run(
        f"mkdir -p .git/logs; ln -s {outside} .git/logs/HEAD; ln -s x other; ln -s refs/heads/a .git/HEAD2"
    )
    assert not (git / "logs/HEAD").is_symlink() and not (git / "HEAD2").is_symlink()
    assert (git / "mine").is_symlink() and (world.workspace / "other").is_symlink()
    assert [("logs/HEAD" in line, "would lead git" in line) for line in ended.undone].count((True, True)) == 1


def test_a_clone_that_fetches_by_itself_takes_a_network_permit(world: World) -> None:
    made = (
        "git init -q new; git -C new config remote.o.url http://example.org/x; git -C new config remote.o.promisor true"
    )
    assert len(world.run(made).undone) == 1 and (world.workspace / "new/.git/config.set-aside").exists()
    again = made.replace("new", "again")
    assert world.run(again, permit=world.permit(again, SandboxOpening(network=True))).undone == []


def test_what_was_set_aside_is_told_and_kept(world: World) -> None:
    ended = world.run("echo content > .envrc")
    assert any(".envrc" in line for line in ended.undone)
    assert (world.workspace / ".envrc.set-aside").read_text() == "content\n"


# -- permits -----------------------------------------------------------------------------------------------------------


def test_a_permit_opens_exactly_what_it_names(world: World) -> None:
    folder = world.root / "granted"
    folder.mkdir()
    text = f"echo x > {folder}/x; echo y > {world.root}/y"
    world.run(text, permit=world.permit(text, SandboxOpening(folders=(str(folder),))))
    assert (folder / "x").exists() and not (world.root / "y").exists()


def test_a_folder_that_was_opened_keeps_its_settings_and_its_secrets(world: World) -> None:
    folder = world.root / "granted"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".env").write_text("S3CRET-OF-TEST")
    text = (
        f"cd {folder}; cat .env; echo x > .git/hooks/pre-commit; echo x > .envrc; echo >> .git/config; echo y > plain"
    )
    ended = world.run(text, permit=world.permit(text, SandboxOpening(folders=(str(folder),))))
    assert "S3CRET-OF-TEST" not in ended.output and (folder / "plain").exists()
    assert not (folder / ".git/hooks/pre-commit").exists() and not (folder / ".envrc").exists()
    assert not (folder / ".git/config").read_text().endswith("\n\n")


def test_a_folder_that_became_a_link_is_not_opened(world: World) -> None:
    (world.root / "elsewhere").mkdir()
    (world.root / "granted").symlink_to(world.root / "elsewhere")
    text = f"echo x > {world.root}/elsewhere/x"
    with pytest.raises(base.CommandChanged):
        world.run(text, permit=world.permit(text, SandboxOpening(folders=(str(world.root / "granted"),))))


def test_the_folder_of_an_approved_command_may_not_become_a_link(world: World) -> None:
    """A background command can replace it while a person reads the question."""
    folder, outside = world.workspace / "build", world.root / "outside"
    folder.mkdir()
    outside.mkdir()
    command = ShellCommand(("bash", "-c", "touch here"), folder, world.environ, "touch here")
    opening = SandboxOpening(host=True)
    permit = Permit(base.digest("touch here", folder, opening), opening)
    os.close(Executor.working_folder(command, permit))
    folder.rmdir()
    folder.symlink_to(outside)
    with pytest.raises(base.CommandChanged):
        Executor.working_folder(command, permit)
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("place", ["hermes", "data/hermes"])
def test_a_home_within_the_workspace_stays_where_it_is_and_closed(world: World, place: str) -> None:
    world.home = world.workspace / place
    world.home.mkdir(parents=True)
    (world.home / "state.db").write_text("the conversations")
    top = place.partition("/")[0]
    for line in (
        f"echo x >> {place}/state.db; echo 'executor: host' > {place}/config.yaml; rm -rf {place}; cat {place}/*",
        f"mv {place} moved; mv {top} moved; mv {place}/state.db .",
        "cat */state.db */*/state.db; ls state.db moved",
    ):
        ended = world.run(line)
        assert "conversations" not in ended.output and ended.code != 0
    assert (world.home / "state.db").read_text() == "the conversations"
    assert not (world.home / "config.yaml").exists()


def test_hermes_own_program_cannot_be_changed_in_its_workspace(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    own = world.workspace / ".venv" / "lib"
    own.mkdir(parents=True)
    (own / "module.py").write_text("old")
    (world.workspace / "src").mkdir()
    monkeypatch.setattr(protected_files, "_own_program", lambda: (str(own.parent),))
    world.run("echo new > .venv/lib/module.py; echo new > .venv/lib/json.py; mv .venv v; rm -rf .venv; echo x > src/x")
    assert {path.name: path.read_text() for path in own.iterdir()} == {"module.py": "old"}
    assert (world.workspace / "src/x").exists()
    assert protected_files.is_protected(own / "json.py", world.workspace)


def test_a_network_permit_opens_the_network_and_nothing_else(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        tcp.settimeout(5)
        text = f"exec 3<>/dev/tcp/127.0.0.1/{tcp.getsockname()[1]}; echo hello >&3; echo x > {world.root}/x"
        world.run(text, permit=world.permit(text, SandboxOpening(network=True)))
        with tcp.accept()[0] as connection:
            assert connection.recv(10) == b"hello\n"
    assert not (world.root / "x").exists()


def test_a_yes_to_a_deletion_deletes_a_repository_with_all_it_holds(world: World) -> None:
    subprocess.run(["git", "init", "-q", str(world.workspace / "sub")], check=True)
    text = "rm -rf sub"
    ended = world.run(text, permit=world.permit(text, SandboxOpening()))
    assert ended.code == 0 and ended.undone == [], ended
    assert not (world.workspace / "sub").exists()


def test_a_permit_for_the_host_leaves_the_sandbox(world: World) -> None:
    text = f"echo x > {world.root}/x"
    assert world.run(text, permit=world.permit(text, SandboxOpening(host=True))).code == 0
    assert (world.root / "x").exists()


def test_no_program_of_the_workspace_answers_to_a_name_that_leaves_the_sandbox(world: World) -> None:
    """A project's virtual environment stands first on PATH, and commands can make programs in it."""
    for name in ("uname", "rg", "bash"):
        program = world.workspace / "venv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\necho planted\n")
        program.chmod(0o755)
    world.path = f"{world.workspace}/venv/bin:.:{world.path}"
    opening = SandboxOpening(host=True)
    assert world.run("uname", permit=world.permit("uname", opening)).output == "Linux\n"
    assert world.run("uname").output == "planted\n", "within the sandbox it is the project's own"
    held = Executor(world.home, config_of(world.home, world.config), world.limits)
    assert not str(held.program("rg", world.environ, world.workspace)).startswith(str(world.workspace))
    by_name = "venv/bin/uname"
    assert world.run(by_name, permit=world.permit(by_name, opening)).output == "planted\n"


@pytest.mark.parametrize("opening", [SandboxOpening(host=True), SandboxOpening(network=True)])
def test_one_changed_byte_is_refused(world: World, opening: SandboxOpening) -> None:
    permit = world.permit("touch one", opening)
    with pytest.raises(base.CommandChanged):
        world.run("touch onf", permit=permit)
    widened = Permit(permit.digest, replace(opening, folders=("/",)))
    with pytest.raises(base.CommandChanged):
        world.run("touch one", permit=widened)
    assert list(world.workspace.iterdir()) == []


# -- limits ------------------------------------------------------------------------------------------------------------


def test_memory_processes_files_and_the_private_tmp_are_bounded(world: World) -> None:
    world.limits = DEFAULTS.changed(command_memory_bytes=200 << 20, command_processes=16, command_file_bytes=1 << 20)
    assert world.run("python3 -c 'x = bytearray(400 << 20); print(len(x))'").code != 0
    many = world.run("for i in $(seq 40); do sleep 20 & done; wait")
    assert many.trouble == "processes"
    world.run("head -c 3000000 /dev/zero > big")
    assert (world.workspace / "big").stat().st_size <= 1 << 20
    if world.sandbox == "bubblewrap":
        world.limits = DEFAULTS.changed(command_tmp_bytes=1 << 20)
        assert "No space left" in world.run("head -c 3000000 /dev/zero > /tmp/big").output


def test_nothing_can_be_put_beside_the_devices(world: World) -> None:
    ended = world.run("head -c 1M /dev/zero > /dev/hoard; echo kept > /dev/null; cat /dev/hoard")
    assert ended.code != 0 and "kept" not in ended.output and "/dev/hoard" in ended.output


def test_many_processes_together_are_held_to_the_memory(world: World) -> None:
    world.limits = DEFAULTS.changed(command_memory_bytes=200 << 20)
    one = "python3 -c 'import time; x = b\"x\" * (90 << 20); time.sleep(20)'"
    assert world.run(f"for i in 1 2 3 4; do {one} & done; wait").trouble == "memory"


@pytest.mark.parametrize("shared", ["m = mmap.mmap(-1, 90 << 20)", "m = mmap.mmap(os.memfd_create('m'), 90 << 20)"])
def test_shared_memory_counts_but_once(world: World, shared: str) -> None:
    world.limits = DEFAULTS.changed(command_memory_bytes=200 << 20)
    shared = shared.replace("os.memfd_create('m')", "(os.ftruncate(f := os.memfd_create('m'), 90 << 20), f)[1]")
    touched = f"import mmap, os, time; {shared}; [m.__setitem__(at, 1) for at in range(0, 90 << 20, 4096)]"
    one = f'python3 -c "{touched}; time.sleep(20)"'
    assert world.run(f"for i in 1 2 3 4; do {one} & done; wait").trouble == "memory"
    forks = f"{touched}; [os.fork() for _ in (1, 2)]; [m[at] for at in range(0, 90 << 20, 4096)]; time.sleep(0.5)"
    ended = world.run(f'python3 -c "{forks}"; echo done')
    assert (ended.trouble, ended.output) == ("", "done\n")


def test_a_command_is_ended_before_the_machine_has_no_memory_left(tmp_path: Path) -> None:
    """Asked of the keeper itself: files in memory belong to no process."""
    folder = os.open(tmp_path, os.O_PATH)
    left = supervisor._available_memory()
    assert 0 < left < 1 << 50
    with closing(socket.socket()) as hermes:
        keeper = supervisor._Keeper({"limits": {"memory_reserve": 2 * left}}, hermes, -1, folder)
        keeper._memory_left = left  # others had the rest before it began
        assert keeper._over_limit() == ""
        keeper._memory_left = 3 * left
        assert keeper._over_limit() == "memory"
    os.close(folder)


def test_a_command_that_uses_up_the_entries_of_the_disk_is_ended(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "_LEAST_ENTRIES", 1 << 60)
    many = (
        "import time; [(open(f'entry{n}', 'w').close(), time.sleep(1e-4)) for n in range(50_000)]"  # others may delete
    )
    assert world.run(f'python3 -c "{many}"').trouble == "disk"


def test_the_kernel_ends_a_command_first_when_memory_runs_out(world: World) -> None:
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    if world.sandbox == "bubblewrap":  # Landlock hides the file
        assert int(world.run("cat /proc/self/oom_score_adj").output) == 500
    assert int(Path("/proc/self/oom_score_adj").read_text()) == ours


def test_a_command_that_fills_the_disk_is_ended(world: World) -> None:
    free = shutil.disk_usage(world.workspace).free
    world.limits = DEFAULTS.changed(command_disk_reserve_bytes=free + (1 << 30))
    ended = world.run("while :; do head -c 50000000 /dev/zero >> big; sleep 0.05; done")
    assert ended.trouble == "disk"


# -- never the host ----------------------------------------------------------------------------------------------------


@pytest.mark.needs_bubblewrap
def test_a_sandbox_that_is_taken_away_never_leads_to_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bwrap"
    program.symlink_to(bubblewrap.programs()[0])  # a copy would not find the libraries that the wheel brings
    world = World(tmp_path / "world", "bubblewrap")
    monkeypatch.setattr(bubblewrap, "programs", lambda: [str(program)])
    executor.find.cache_clear()
    try:
        assert world.run("touch held").code == 0
        program.unlink()
        ended = world.run(f"touch {world.workspace}/escaped")
        assert ended.trouble.startswith("sandbox") and ended.code != 0
        assert not (world.workspace / "escaped").exists()
    finally:
        executor.find.cache_clear()


def test_landlock_that_is_taken_away_never_leads_to_the_host(tmp_path: Path) -> None:
    """A process that had found Landlock loses it: a filter refuses its system calls from then on."""
    code = textwrap.dedent(f"""
        import errno, struct, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from hermes_agent.execution import executor, landlock
        from hermes_config.config import of as config_of
        from test_executor import World
        world = World(Path({str(tmp_path)!r}) / "world", "landlock")
        executor.sandbox_of(config_of(world.home, world.config))
        line = lambda code, yes, no, value: struct.pack("=HBBI", code, yes, no, value)
        refuse = line(0x20, 0, 0, 0) + b"".join(
            line(0x15, 0, 1, number) + line(0x06, 0, 0, 0x50000 | errno.ENOSYS) for number in (444, 445, 446)
        ) + line(0x06, 0, 0, 0x7FFF0000)
        landlock._libc.prctl(38, 1, 0, 0, 0)
        landlock.load_filter(refuse)
        print(world.run(f"touch {{world.workspace}}/escaped"))
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "sandbox: Function not implemented" in done.stdout, done.stdout + done.stderr
    assert not (tmp_path / "world/person/project/escaped").exists()


def test_where_no_sandbox_works_nothing_runs_without_a_permit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, "confined")
    monkeypatch.setattr(bubblewrap, "programs", list)
    monkeypatch.setattr(executor.landlock, "version", lambda: 2)
    executor.find.cache_clear()
    try:
        assert executor.sandbox_of(config_of(world.home, world.config)).sandbox == "none"
        with pytest.raises(base.ExecutorUnavailable, match="a person has to approve"):
            world.run("touch escaped")
        text = "touch approved"
        assert world.run(text, permit=world.permit(text, SandboxOpening(host=True))).code == 0
        for wish in SANDBOXES:
            with pytest.raises(base.ExecutorUnavailable, match=f"executor: {wish} cannot be used"):
                executor.sandbox_of(config_of(Path(), {"executor": wish}))
    finally:
        executor.find.cache_clear()
    assert [path.name for path in world.workspace.iterdir()] == ["approved"]


def test_an_executor_that_we_lack_is_refused_by_name() -> None:
    with pytest.raises(base.ExecutorUnavailable, match="executor 'docker'"):
        executor.sandbox_of(config_of(Path(), {"executor": "docker"}))
    assert executor.chosen(config_of(Path(), {"terminal": {"backend": "local"}})) == "confined"


_RUNNER = """
import os, time
end = time.monotonic() + 3
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
open("survivor", "w")
"""


def test_a_process_that_is_never_at_rest_ends_with_its_command(world: World) -> None:
    (world.workspace / "runner.py").write_text(_RUNNER)
    ended = world.run("python3 runner.py & sleep 0.3")
    time.sleep(3.5)
    assert (ended.code, (world.workspace / "survivor").exists()) == (0, False)


def test_a_keeper_that_is_killed_costs_the_next_commands_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, "host")
    assert world.run("true").code == 0

    def children(pid: int) -> Iterator[int]:
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())

    supervisors = [
        pid for pid in children(os.getpid()) if b"own_networks=False" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    keepers = [pid for supervisor in supervisors for pid in children(supervisor)]
    assert keepers
    os.kill(keepers[0], signal.SIGKILL)
    time.sleep(0.2)
    with ThreadPoolExecutor(5) as pool:
        ended = list(pool.map(lambda number: world.run(f"echo {number}; sleep 0.1"), range(5)))
    assert [one.output.strip() for one in ended] == ["0", "1", "2", "3", "4"]


# -- kill -9 -----------------------------------------------------------------------------------------------------------

_FORMS = {
    "plain": "sleep 1.5; touch x",
    "setsid": "setsid bash -c 'sleep 1.5; touch x' & sleep 9",
    "nohup": "nohup bash -c 'sleep 1.5; touch x' & sleep 9",
    "double fork": "( (sleep 1.5; touch x) & ) & sleep 9",
}


@pytest.mark.parametrize("sandbox", [*SANDBOXES, "host"])
def test_nothing_outlives_a_kill_of_hermes(sandbox: str, tmp_path: Path) -> None:
    started = []
    for name, line in _FORMS.items():
        root = tmp_path / name.replace(" ", "-")
        code = textwrap.dedent(f"""
            import sys, threading, time
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            from pathlib import Path
            from test_executor import World
            world = World(Path({str(root)!r}), {sandbox!r})
            # The thread that starts a command need not be the one that lives on.
            threading.Thread(target=lambda: world.run("touch begun; " + {line!r})).start()
            time.sleep(60)
        """)
        started.append((subprocess.Popen([sys.executable, "-c", code]), root / "person" / "project"))
    try:
        deadline, waiting = time.monotonic() + 20, list(started)
        while waiting:  # whichever begins first is killed first: the others may take longer than its command
            assert time.monotonic() < deadline
            begun = [one for one in waiting if (one[1] / "begun").exists()]
            for process, _ in begun:
                process.send_signal(signal.SIGKILL)
                process.wait()
            waiting = [one for one in waiting if one not in begun]
            assert all(process.poll() is None for process, _ in waiting)
            time.sleep(0.01)
    finally:
        for process, _ in started:
            process.kill()
    time.sleep(2.5)
    assert [workspace for _, workspace in started if (workspace / "x").exists()] == []
