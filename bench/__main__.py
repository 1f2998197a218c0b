"""`make bench`: runs the benchmarks of this folder, or those named, one after another.

A benchmark is a module here with a docstring and a `main()`. Each runs in a process of its own, so that
none warms or crowds another. Figures are ratios to a floor measured in the same run, never bare times: see
the modules. What begins with a dash is passed on to them (`ARGS="gateway --quick"`). The soak has a verb of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def main(arguments: list[str]) -> int:
    chosen = [word for word in arguments if not word.startswith("-")]
    options = [word for word in arguments if word.startswith("-")]
    known = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_") and path.stem != "soak")
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
        command = [sys.executable, "-m", f"bench.{name}", *options]
        failed += subprocess.run(command, cwd=FOLDER.parent, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
