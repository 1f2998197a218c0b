"""`make bench`: runs the benchmarks of this folder, or those named, one after another.

A benchmark is a module here with a docstring and a `main()`. Each runs in a process of its own, so that
none warms or crowds another. Figures are ratios to a floor measured in the same run, never bare times: see
the modules.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(chosen: list[str]) -> int:
    known = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))
    unknown = [name for name in chosen if name not in known]
    if unknown or not known:
        print(
            f"bench: there is no {', '.join(unknown) or 'benchmark'}; known: {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    failed = 0
    for name in chosen or known:
        print(f"── {name}", flush=True)
        failed += (
            subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=FOLDER.parent, check=False).returncode != 0
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
