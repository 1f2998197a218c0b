"""Fetches other people's programs by name into `.conformance/`: a virtual environment and a folder for Node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".conformance"
PYTHON = FOLDER / "venv" / "bin" / "python"
_NODE = FOLDER / "node"
_SECONDS = 900


class NotInstalled(Exception):
    """Why a program is not there, in one line."""


def python() -> Path:
    """The Python that has the clients and engines of PyPI."""
    wanted = HERE / "requirements.txt"
    if not _is_current(FOLDER / "venv", wanted):
        _say(f"fetching {_names(wanted)} from PyPI into {FOLDER.name}/venv")
        _run([sys.executable, "-m", "venv", "--clear", str(FOLDER / "venv")], "venv")
        _run([str(PYTHON), "-m", "pip", "install", "--quiet", "-r", str(wanted)], "pip")
        shutil.copyfile(wanted, FOLDER / "venv" / wanted.name)
    return PYTHON


def node() -> Path:
    """The folder with the clients and engines of npm. Scripts run there find them by name."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("there is no node and npm on this machine (Node 20 or newer)")
    wanted = HERE / "package.json"
    if not _is_current(_NODE, wanted):
        _say(f"fetching the packages of {wanted.name} from npm into {FOLDER.name}/node")
        shutil.rmtree(_NODE, ignore_errors=True)
        _NODE.mkdir(parents=True)
        shutil.copyfile(wanted, _NODE / wanted.name)
        try:
            _run(["npm", "install", "--no-fund", "--no-audit", "--loglevel=error", f"--prefix={_NODE}"], "npm")
        except NotInstalled:
            (_NODE / wanted.name).unlink()
            raise
    return _NODE


def node_version() -> str:
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def _is_current(folder: Path, wanted: Path) -> bool:
    known = folder / wanted.name
    return known.is_file() and known.read_bytes() == wanted.read_bytes()


def _names(wanted: Path) -> str:
    return ", ".join(line.partition("==")[0] for line in wanted.read_text().splitlines() if "==" in line)


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{what} did not end within {_SECONDS} seconds") from error
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if "error" in line.lower()] or ["no reason"]
        raise NotInstalled(f"{what} failed: {said[0].strip()[:200]}")


def _say(text: str) -> None:
    print(f"conformance: {text}", file=sys.stderr, flush=True)
