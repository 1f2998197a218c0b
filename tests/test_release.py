"""The release: a wheel and a source archive that work with nothing but the packages they declare."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools import release

from hermes_config.version import VERSION

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("release")]  # one process builds them, once
ADDRESS = "https://forge.example/ada/hermes"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    release.build(folder, ADDRESS)
    return folder


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("git@forge.example:ada/hermes.git\n", ADDRESS),
        ("https://token@forge.example/ada/hermes.git", ADDRESS),
        ("ssh://git@forge.example/ada/hermes", ADDRESS),
        ("/home/ada/hermes", None),
        ("", None),
    ],
)
def test_a_fork_names_itself(remote: str, address: str | None) -> None:
    assert release.web_address(remote) == address


def test_both_files_hold_every_module_and_the_schema(dist: Path) -> None:
    wheel = zipfile.ZipFile(next(dist.glob("*.whl")))
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        sources = {name.partition("/src/")[2] for name in archive.getnames() if "/src/" in name}
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=_root(), check=True, capture_output=True, text=True)
    wanted = {line.removeprefix("src/") for line in tracked.stdout.splitlines()}
    assert wanted <= set(wheel.namelist()), "files are missing in the wheel"
    assert wanted <= sources, "files are missing in the source archive"
    about = wheel.read(f"hermes_gateway-{VERSION}.dist-info/METADATA").decode()
    assert f"Version: {VERSION}\n" in about and f"Project-URL: Repository, {ADDRESS}\n" in about


@pytest.mark.parametrize("extras", [(), ("postgres", "telegram", "tui")], ids=["core", "extras"])
def test_the_wheel_answers_where_only_its_declared_packages_are_installed(
    dist: Path, tmp_path: Path, extras: tuple[str, ...]
) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    pip += ["--no-compile"]  # what is run is compiled when it is
    subprocess.run([*pip, str(next(dist.glob("*.whl")))], check=True, timeout=120)
    for name in _needed("hermes-gateway", set(extras)):
        _link(metadata.distribution(name), packages)

    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "HERMES_HOME": str(tmp_path / "home")}

    def hermes(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python.with_name("hermes")), *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=60, check=False,
        )  # fmt: skip

    assert hermes("--version").stdout.split()[:2] == ["hermes", VERSION]
    answered = hermes("--model", "demo", "-z", "what is 17 * 4?")
    assert answered.returncode == 0 and "68" in answered.stdout, answered.stderr
    assert "what is 17 * 4?" in hermes("sessions", "list").stdout, "the conversation is stored"
    for command in ("doctor", "status", "gateway", "demo"):
        assert hermes(command, "--help").returncode == 0


def _root() -> Path:
    return Path(__file__).parents[1]


def _needed(name: str, extras: set[str]) -> set[str]:
    """The distributions that a package declares, and those that they declare."""
    found: set[str] = set()
    for line in metadata.requires(name) or ():
        one = Requirement(line)
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {"", *extras}):
            found |= {one.name} | _needed(one.name, set(one.extras))
    return found


def _link(distribution: metadata.Distribution, packages: Path) -> None:
    """Put a package of this environment into another one."""
    for entry in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (packages / entry).exists():
            (packages / entry).symlink_to(distribution.locate_file(entry))
