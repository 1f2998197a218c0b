"""The types of approvals: questions, answers, needs, judgements.

Nothing here imports a parser or a store, so every surface that shows a question can import it at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hermes_state.ids import ConversationId, PersonId, TurnId

if TYPE_CHECKING:
    from hermes_state.turns.approvals import Approval


Choice = Literal["task", "once", "session", "always", "deny"]
"""`session` is the conversation."""
CHOICES: tuple[Choice, ...] = ("task", "once", "session", "always", "deny")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalQuestion:
    """A permission question with everything a person needs to decide."""

    id: str
    """The id of the row; another surface answers it with `db.approvals.decide`."""
    kind: str
    command: str
    """The exact command or path that the answer covers."""
    workdir: str
    detail: str
    why: str
    conversation_id: ConversationId
    turn_id: TurnId
    call_id: str
    person_id: PersonId | None
    """The person for whom the call runs."""
    platform: str
    expires_at: float
    """When the question becomes a denial, by the store's clock."""
    seconds: float
    """Seconds from now until then."""
    choices: tuple[Choice, ...] = ("once", "deny")
    labels: dict[str, str] = field(default_factory=dict)
    """The label of each choice: `task` → "Network for this task"."""
    sandbox: str = ""
    """Where the call would run, and which access a yes gives it."""
    content: str = ""
    """For a write: sizes, hashes and a bounded difference."""

    def label(self, choice: Choice) -> str:
        return self.labels.get(choice) or choice.capitalize()


def question_of(approval: Approval, *, now: float) -> ApprovalQuestion:
    """Make the question from its stored row."""
    call = approval.call

    def text(name: str) -> str:
        return str(call.get(name) or "")

    offered: Any = call.get("choices") or ("once", "deny")
    return ApprovalQuestion(
        id=approval.id, kind=text("kind"), command=text("text"), workdir=text("workdir"), detail=text("detail"),
        why=text("why"), conversation_id=approval.conversation_id, turn_id=approval.turn_id, call_id=text("call_id"),
        person_id=approval.requester_id, platform=text("platform"), expires_at=approval.expires_at,
        seconds=max(0.0, approval.expires_at - now), choices=tuple(one for one in CHOICES if one in offered),
        labels=dict(call.get("labels") or {}), sandbox=text("sandbox") or text("wall"), content=text("content"),
    )  # fmt: skip


class Approver(Protocol):
    """A surface that can ask a person. Its question may be cancelled at any moment, which means no answer."""

    async def ask(self, question: ApprovalQuestion) -> Choice: ...


class Yolo:
    """The switch for "do not ask me", one a session. It opens no sandbox, and passes no floor or deny rule."""

    def __init__(self, on: bool = False) -> None:
        self.on = on


UNSURE = "…"
"""In `Program.words`: a part that only the running shell knows; it may become any number of words."""

Kind = Literal["network", "folder", "host", "change"]


@dataclass(frozen=True, slots=True)
class Need:
    """One visible reason why a command needs a person's yes."""

    kind: Kind
    """`network`: reach other machines. `folder`: write outside the workspace. `host`: act on the machine itself (a
    service, another user's rights, a container, other processes). `change`: an irreversible change inside the
    workspace, which needs no opening in the sandbox."""
    value: str
    """`folder`: the absolute path of the folder. Else the program that needs it (`curl`, `git push`)."""
    why: str
    """The reason in one line for a person: "curl reaches the network"."""


@dataclass(frozen=True, slots=True)
class Program:
    """One simple command as it would run, for the rules of `approvals.deny` and `approvals.ask`."""

    name: str | None
    """The program's own name, resolved (`/usr/bin/git` → `git`); None when only the running shell can know it."""
    words: tuple[str, ...]
    """The name and the arguments, global options before a subcommand left out (`git -C x push` → git, push)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    level: Literal["run", "ask", "never"]
    """`run`: no need was seen. `ask`: see `needs`. `never`: the floor."""
    why: str = ""
    needs: tuple[Need, ...] = ()
    programs: tuple[Program, ...] = ()
    understood: bool = True
    """False if the line was not fully parsed; it may then hold programs that `programs` does not name."""
