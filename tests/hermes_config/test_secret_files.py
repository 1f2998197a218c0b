"""The list of secret places and protected files: by name, and as a walk through a real workspace finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hermes_config import secret_files
from hermes_config.secret_files import WorkspaceFiles, found_in, is_secret

HOME = Path("/home/ada")

SECRET = [
    "~/.ssh/id_rsa",
    "~/.ssh/config",
    "~/.gnupg/secring.gpg",
    "~/.aws/config",
    "~/.aws/sso/cache/x.json",
    "~/.azure/x",
    "~/.kube/config",
    "~/.docker/config.json",
    "~/.config/gcloud/x",
    "~/.config/gh/hosts.yml",
    "~/.password-store/a.gpg",
    "~/.cargo/credentials.toml",
    "~/.vault-token",
    "~/.my.cnf",
    "~/.bash_history",
    "~/.envrc",
    "~/.mozilla/firefox/x/logins.json",
    "~/.netrc",
    "~/.npmrc",
    "~/.pypirc",
    "~/.config/google-chrome/Default/Cookies",
    "~/.config/chromium/Default/Cookies",
    "~/.local/share/keyrings/login.keyring",
    "~/.pgpass",
    "~/.git-credentials",
    "~/.cache/huggingface/token",
    "~/.config/rclone/rclone.conf",
    "~/.boto",
    "~/.s3cfg",
    "~/.terraformrc",
    "~/.codex/auth.json",
    "~/.claude/.credentials.json",
    "~/.claude.json",
    "~/.zsh_history",
    "~/.local/share/fish/fish_history",
    "~/project/.env",
    "~/project/.env.local",
    "~/project/.env~",
    "~/project/.env-production",
    "~/project/server.key.bak",
    "~/project/prod.env",
    "~/project/server.pem",
    "~/project/server.key",
    "~/project/kubeconfig",
    "~/project/service-account-1.json",
    "~/project/client_secret_2.json",
    "~/project/db.secret",
    "~/project/.kube/config",
    "~/project/.ENV",
    "~/project/deploy_rsa",
    "~/project/config/master.key",
    "~/project/secrets.yaml",
    "~/project/credentials",
    "~/project/.ssh/known_hosts",
    "~/project/terraform.tfstate",
    "~/project/.aws/credentials",
    "/srv/app/.env",
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/ssl/private/x.pem",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/run/secrets/db",
    "/var/run/secrets/k",
    "/proc/1/environ",
    "/proc/self/environ",
    "/proc/12/task/12/environ",
]

HARMLESS = [
    "~/project/.env.example",
    "~/project/.env.example~",
    "~/project/.env-example",
    "~/project/.env.sample",
    "~/project/.env.template",
    "~/project/.env.dist",
    "~/project/example.env",
    "~/.cache/pip/x",
    "~/project/id_rsa.pub",
    "~/project/main.py",
    "~/project/secrets.py",
    "~/project/credentials.ts",
    "~/project/keys.json",
    "~/project/monkey",
    "~/project/.aws/task.json",
    "~/project/.docker/Dockerfile",
    "~/project/.env/bin/python",
    "~/project/environment.py",
    "~/project/gh/notes.md",
    "~/project/tests/certs/server.key",
    "~/project/.venv/lib/python3.11/site-packages/certifi/cacert.pem",
    "~/project/cacert.pem",
    "~/project/node_modules/x/test/a.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/certs/Root.pem",
    "/usr/lib/python3/dist-packages/certifi/cacert.pem",
    "/usr/share/doc/x/examples/server.key",
    "/etc/passwd",
    "/etc/ssh/ssh_config",
    "/etc/ssh/ssh_host_rsa_key.pub",
    "~/.gitconfig",
    "~/.config/git/config",
    "~/.profile",
    "~/project/debug.keystore",
    "/proc/1/status",
]


def at(text: str) -> Path:
    return Path(text.replace("~", str(HOME), 1))


@pytest.mark.parametrize("text", SECRET)
def test_secret_by_name(text: str) -> None:
    assert is_secret(at(text), user_home=HOME)


@pytest.mark.parametrize("text", HARMLESS)
def test_not_secret_by_name(text: str) -> None:
    assert not is_secret(at(text), user_home=HOME)


def test_a_folder_named_like_a_secret_file_is_none() -> None:
    assert not is_secret(HOME / "work/.env", user_home=HOME, folder=True)
    assert is_secret(HOME / "work/.ssh", user_home=HOME, folder=True)


def test_the_folder_above_the_workspace_makes_no_examples() -> None:
    key = Path("/home/ada/tests/app/server.key")
    assert is_secret(key, user_home=HOME, root=Path("/home/ada/tests/app"))
    assert not is_secret(key, user_home=HOME, root=Path("/home/ada"))


def test_own_patterns_are_names_and_paths() -> None:
    own = ("*.vault", "~/private", "conf/*.yaml", "/srv/keys")
    assert own == ("*.vault", "~/private", "conf/*.yaml", "/srv/keys")
    for text in ("~/project/a.vault", "~/private/x/y", "~/project/conf/a.yaml", "/srv/keys/k"):
        assert is_secret(at(text), user_home=HOME, own=own)
        assert not is_secret(at(text), user_home=HOME)
    assert not is_secret(at("~/project/conf.yaml"), user_home=HOME, own=own)
    fixed = secret_files.places(HOME, HOME / ".hermes", own=own)
    assert HOME / "private" in fixed and Path("/srv/keys") in fixed


def test_places_are_absolute_and_end_with_the_hermes_home() -> None:
    fixed = secret_files.places(HOME, Path("/data/hermes"))
    assert fixed[-1] == Path("/data/hermes")
    assert {HOME / ".ssh", Path("/etc/shadow"), HOME / ".mozilla"} <= set(fixed)
    assert all(place.is_absolute() for place in fixed)


# -- the walk ------------------------------------------------------------------------------------------------------

PRIVATE = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n"
PUBLIC = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"


def look(root: Path, **more: object) -> WorkspaceFiles:
    return found_in(root, user_home=Path("/nonexistent"), **more)  # type: ignore[arg-type]


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def settle() -> None:
    """Long enough for a folder's time of change to be told from the next one."""
    time.sleep(0.15)


def names(found: WorkspaceFiles, root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in found.secrets}


def test_the_walk_finds_secrets_by_name_and_by_content(tmp_path: Path) -> None:
    secret = (".env", "a/b/.env.local", "tls/server.pem", "tls/server.key", ".npmrc", "auth.json", "config/master.key")
    texts = {"tls/server.pem": PRIVATE, "tls/server.key": PRIVATE, ".npmrc": "//r/:_authToken=x",
             "config/master.key": "0a1b", "auth.json": '{"github-oauth": {}}'}  # fmt: skip
    for name in secret:
        write(tmp_path / name, texts.get(name, "x"))
    write(tmp_path / ".ssh/known_hosts")
    plain = {".env.example": "x", "tls/chain.pem": PUBLIC, "talk.key": "PK\x03\x04",
             "locales/auth.json": '{"login": "Log in"}', "sub/.npmrc": "engine-strict=true\n",
             "tests/server.key": PRIVATE, ".env.d/x": "x", "secrets.py": "x",
             ".venv/lib/python3.11/site-packages/certifi/cacert.pem": PUBLIC}  # fmt: skip
    for name, text in plain.items():
        write(tmp_path / name, text)
    assert names(look(tmp_path), tmp_path) == {*secret, ".ssh"}


def test_a_file_that_becomes_a_secret_is_found_although_its_folder_has_not_changed(tmp_path: Path) -> None:
    file = write(tmp_path / "tls/server.pem", PUBLIC)
    settle()
    assert look(tmp_path).secrets == ()
    with file.open("a") as opened:
        opened.write(PRIVATE)
    assert look(tmp_path).secrets == (file,)


def test_a_link_stands_for_what_it_leads_to(tmp_path: Path) -> None:
    root, shared = tmp_path / "ws", write(tmp_path / "shared/production")
    root.mkdir()
    (root / ".env").symlink_to(shared)
    (root / "sub").mkdir()
    (root / "sub/.env").symlink_to("/usr/bin/env")
    (root / "sub/.ssh").symlink_to(tmp_path)
    (root / "sub/b.env").symlink_to(tmp_path / "later")
    settle()
    assert look(root).secrets == (shared,)
    later = write(tmp_path / "later")
    assert set(look(root).secrets) == {shared, later}


def test_what_changes_is_seen_by_the_next_walk(tmp_path: Path) -> None:
    folder = tmp_path / "a/b/c"
    folder.mkdir(parents=True)
    settle()
    assert look(tmp_path).secrets == ()
    one = write(folder / ".env")
    assert look(tmp_path).secrets == (one,)
    two = write(folder / "x.env")  # at once: the folder may have the same time of change
    assert set(look(tmp_path).secrets) == {one, two}
    one.unlink()
    assert look(tmp_path).secrets == (two,)


def test_setting_the_times_of_a_folder_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    settle()
    look(tmp_path)
    before = folder.stat()
    secret = write(folder / ".env")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert look(tmp_path).secrets == (secret,)


@pytest.mark.parametrize("hidden", ["node_modules/x", "tests/deep", ".git/objects/ab", "src/__pycache__"])
def test_a_secret_that_is_moved_with_its_folder_stays_one(tmp_path: Path, hidden: str) -> None:
    write(tmp_path / "conf/server.key", PRIVATE)
    (tmp_path / hidden).mkdir(parents=True)
    for name in ("HEAD", "refs/x", "objects/x"):
        write(tmp_path / ".git" / name)
    settle()
    assert names(look(tmp_path), tmp_path) == {"conf/server.key"}
    assert names(look(tmp_path), tmp_path) == {"conf/server.key"}
    (tmp_path / "conf").rename(tmp_path / hidden / "conf")
    for _ in range(3):
        assert names(look(tmp_path), tmp_path) == {f"{hidden}/conf/server.key"}


def test_a_new_file_that_gets_the_inode_of_a_removed_secret_is_none(tmp_path: Path) -> None:
    secret = write(tmp_path / "conf/.env")
    assert look(tmp_path).secrets == (secret,)
    inode = secret.stat().st_ino
    secret.unlink()
    plain = [write(tmp_path / f"main{number}.py") for number in range(200)]
    if inode not in {path.stat().st_ino for path in plain}:
        os.link(plain[0], secret)  # this file system gives no inode twice: the name alone must do it, and does
        assert look(tmp_path).secrets == (secret,)
        return
    assert look(tmp_path).secrets == ()


@pytest.mark.parametrize("bound", [{"most_entries": 50}, {"seconds": 0.0}])
def test_beyond_its_bounds_the_walk_says_so(tmp_path: Path, bound: dict[str, float]) -> None:
    for number in range(100):
        write(tmp_path / f"d{number}/file")
    found = look(tmp_path, **bound)
    assert not found.complete and found.unseen
    assert look(tmp_path).complete


def test_git_hooks_and_settings_are_protected_also_those_it_names_in_the_workspace(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    for name in ("HEAD", "objects/x", "refs/x", "hooks/pre-commit"):
        write(git / name)
    write(git / "config", "[core]\n\thooksPath = .githooks\n[include]\n\tpath = ../team.gitconfig\n\tpath = ../..\n")
    write(tmp_path / ".githooks/pre-push")
    write(tmp_path / "team.gitconfig")
    write(tmp_path / "worktree/.git", "gitdir: /x")
    for name in ("HEAD", "objects/x", "refs/x", "config"):
        write(git / "modules/sub" / name)
    found = look(tmp_path)
    assert set(found.protected) == {
        git / "config", git / "hooks", tmp_path / ".githooks", tmp_path / "team.gitconfig", tmp_path / "worktree/.git",
        git / "modules/sub/config",
    }  # fmt: skip
    assert set(found.pinned) == {git, git / "modules/sub"}


def test_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    secret = write(tmp_path / "x/.env")
    assert look(tmp_path).secrets == (secret,)
    assert look(tmp_path / "not there") == WorkspaceFiles((), (), (), True)


def test_a_second_walk_reads_no_folder_that_has_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(25):
        write(tmp_path / f"p{number // 10}/m{number}/f.py")
    settle()
    first, read = look(tmp_path), list[object]()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda handle: (read.append(handle), scandir(handle))[1])
    assert look(tmp_path) == first and read == []
    write(tmp_path / "p1/m12/.env")
    assert names(look(tmp_path), tmp_path) == {"p1/m12/.env"} and len(read) == 1
