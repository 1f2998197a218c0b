"""The name of a lease's holder, and whether its process still runs.

The lease of a killed process would keep its conversation busy until the lease expires. On the same machine we can free
it at once: a holder names its machine, its process id and when that process started, so that a reused process id is
not mistaken for the holder. On another machine nobody can know, and the lease has to expire.
"""

from __future__ import annotations

import functools
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId


def machine() -> str:
    """The name of this machine, as used in holder names."""
    return socket.gethostname()


def new_holder() -> str:
    return f"{_this_process(os.getpid())}/{os.urandom(4).hex()}"


@functools.lru_cache(maxsize=1)
def _this_process(pid: int) -> str:
    """The holder name's part for this process; a forked child has another process id."""
    return f"{socket.gethostname()}/{pid}/{started(pid) or 0}"


def is_gone(holder: str) -> bool:
    """Whether the holder certainly no longer runs: it was a process of this machine and has ended."""
    parts = holder.split("/")
    if len(parts) != 4 or parts[0] != socket.gethostname() or not (parts[1].isdigit() and parts[2].isdigit()):
        return False
    began = started(int(parts[1]))
    return began is None if parts[2] == "0" else began != int(parts[2])


def at_work(db: SessionDB, conversation_id: ConversationId) -> bool:
    """Whether a process that may still be alive holds the conversation."""
    lease = db.leases.get(conversation_id)
    return lease is not None and lease.expires_at > db.clock() and not is_gone(lease.holder)


def release_gone(db: SessionDB, conversation_id: ConversationId) -> bool:
    """Release the conversation's lease if its holder has certainly ended; True if it was released."""
    lease = db.leases.get(conversation_id)
    if lease is None or not is_gone(lease.holder):
        return False
    db.leases.release_holder(lease.holder)
    return True


def started(pid: int) -> int | None:
    """When the process started, in ticks since boot; None without such a process, 0 if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self").exists() else _signalled(pid)
    except OSError:
        return _signalled(pid)
    # A zombie has ended; its parent has only not collected its exit status yet.
    return None if fields[0] == "Z" else int(fields[19])


def _signalled(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return 0
