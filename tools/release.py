"""Build the wheel and the source archive of the committed tree into `dist/`: `make dist`.

The addresses in the package's metadata come from the repository in which it is built, so a fork names itself.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PAGES = {
    "Repository": "",
    "Documentation": "/blob/main/docs/README.md",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}


def web_address(remote: str) -> str | None:
    """The page of a repository, from what `git remote` calls it; None for a folder on this machine."""
    found = re.fullmatch(r"(?:https://(?:[^@/]+@)?|(?:ssh://)?git@)([\w.-]+)[:/](.+?)(?:\.git)?/?", remote.strip())
    return f"https://{found[1]}/{found[2]}" if found else None


def build(target: Path, address: str | None, *, tree: str = "HEAD") -> list[Path]:
    """Build both files from a committed tree; with an address, it stands in their metadata."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "tree.tar"
        subprocess.run(["git", "archive", "--output", str(archive), tree], cwd=_ROOT, check=True)
        source = Path(folder) / "source"
        with tarfile.open(archive) as opened:
            opened.extractall(source)  # our own tree, as git wrote it
        if address:
            urls = "\n".join(f'{name} = "{address}{page}"' for name, page in _PAGES.items())
            with (source / "pyproject.toml").open("a", encoding="utf-8") as file:
                file.write(f"\n[project.urls]\n{urls}\n")
        return [target / _build(kind, source, target) for kind in ("sdist", "wheel")]


def _build(kind: str, source: Path, target: Path) -> str:
    code = f"import sys, setuptools.build_meta as b; print('built', b.build_{kind}(sys.argv[1]))"
    said = subprocess.run(
        [sys.executable, "-c", code, str(target.absolute())], cwd=source, check=True, capture_output=True, text=True
    )
    return said.stdout.split()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="the page of the repository (default: from git remote get-url origin)")
    parser.add_argument("--to", type=Path, default=_ROOT / "dist", metavar="FOLDER")
    args = parser.parse_args()
    remote = ""
    with contextlib.suppress(subprocess.CalledProcessError):
        asked = ["git", "remote", "get-url", "origin"]
        remote = subprocess.run(asked, cwd=_ROOT, check=True, capture_output=True, text=True).stdout
    address = args.url or web_address(remote)
    for file in build(args.to, address):
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {os.path.relpath(file)}")
    if not address:
        print(
            "no address in the metadata: this clone has no remote on the web; python -m tools.release --url gives one",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
