"""How often a search finds the message that answers a question, among its first twenty hits.

The set is made here: exchanges of two or three messages, each with the query a model or a person would write to find
one of them again, put at random places into conversations made of sentences about the same things. One third of the
queries repeat the words of the message that is wanted, one third have other forms of them, and for one third the words
stand in the message beside it, as in most answers. Not a picture of anybody's conversations: a comparison of ways to
search the same ones.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from hermes_state.search.search import SearchHits
from hermes_state.session_db import SessionDB

HITS = 20
Exchange = tuple[str, str, tuple[str, ...], int]  # kind, query, messages, which of them is wanted

EXCHANGES: tuple[Exchange, ...] = (
    ("same words", "spare key neighbour", ("Anna, our neighbour, has a spare key to the house.", "Noted."), 0),
    ("same words", "wifi password cottage", ("The wifi password of the cottage is on the fridge.", "Good."), 0),
    ("same words", "boiler pressure", ("Who looked at it?", "The boiler pressure should be at 1.4 bar."), 1),
    ("same words", "dentist Tuesday", ("The dentist moved me to Tuesday at nine.", "I changed the reminder."), 0),
    ("same words", "peanut allergy Leo", ("Leo has a peanut allergy, so no satay.", "Understood."), 0),
    ("same words", "bike lock code", ("I set the bike lock code to the year of the house.", "Fine."), 0),
    ("same words", "nginx timeout", ("What was it?", "The nginx timeout was thirty seconds; I made it ninety."), 1),
    ("same words", "tax office letter", ("A letter of the tax office came about 2024.", "Shall I read it?"), 0),
    ("same words", "train platform Basel", ("In Basel the train leaves from platform eleven.", "Thanks."), 0),
    ("same words", "kitchen paint colour", ("The kitchen paint is a colour called oat.", "Saved."), 0),
    ("same words", "blood type Mira", ("Mira told me that her blood type is A negative.", "I see."), 0),
    ("same words", "printer driver", ("It prints again.", "The printer driver had to be the one from 2019."), 1),
    ("other forms", "flight cancel refund", ("They cancelled both flights and refunded us in April.", "At last."), 0),
    ("other forms", "deploy fail migration", ("Why?", "The deployment failed because two migrations collided."), 1),
    ("other forms", "move plant balcony", ("I moved the plants from the balconies inside.", "Before the frost."), 0),
    ("other forms", "invoice pay late", ("Both invoices were paid later than we agreed.", "Should I write?"), 0),
    ("other forms", "rent increase", ("The landlord is increasing rents by four percent.", "From when on?"), 0),
    ("other forms", "recipe double sugar", ("I doubled the sugars in grandmother's recipes.", "Too sweet?"), 0),
    ("other forms", "teacher praise essay", ("Her teachers praised the essays.", "Wonderful."), 0),
    ("other forms", "battery replacement", ("The car starts.", "We replaced the batteries of the remote."), 1),
    ("other forms", "hike blister", ("Hiking in the new boots left blisters.", "Try two socks."), 0),
    ("other forms", "schedule backup nightly", ("Scheduling is done.", "Backups are scheduled for every night."), 1),
    ("other forms", "photo scan album", ("I scanned the photos of the old albums.", "How many?"), 0),
    ("other forms", "query optimise index", ("Faster now?", "Optimising the queries meant two indexes more."), 1),
    ("beside", "vet name cat", ("Which vet did we see with the cat?", "Dr. Okafor, in Mill Lane."), 1),
    ("beside", "restaurant anniversary", ("Where was the restaurant for our anniversary?", "Da Enzo, upstairs."), 1),
    ("beside", "shoe size Tom", ("Do you remember the shoe size of Tom?", "Forty-three, and wide."), 1),
    ("beside", "meeting room floor", ("On which floor is the meeting room?", "Third, past the lifts."), 1),
    ("beside", "birthday gift mother", ("What birthday gift did mother want?", "A lamp, the green glass one."), 1),
    ("beside", "hotel Lisbon", ("How was the hotel in Lisbon called?", "Casa das Janelas, I think."), 1),
    ("beside", "server disk usage", ("What uses the disk of the server?", "Old core dumps, forty of them."), 1),
    ("beside", "insurance number", ("Can you find the insurance number?", "It ends in 7741."), 1),
    ("beside", "plumber recommended", ("Which plumber was recommended to us?", "Hansen and daughter."), 1),
    ("beside", "book chapter quote", ("From which chapter was that quote in the book?", "Nine, near the end."), 1),
    ("beside", "medicine dose", ("What dose of the medicine is right?", "Half of one in the morning."), 1),
    ("beside", "concert seats", ("Where are our seats at the concert?", "Row F, on the left."), 1),
)  # fmt: skip

_SENTENCES = (
    "Could you remind me of the {} tomorrow?", "The {} is fine, but the {} is not.", "I wrote to them about the {}.",
    "Let us talk about the {} another day.", "Is there anything new about the {}?", "Forget the {}, it was the {}.",
    "I am not sure about the {} yet.", "Yes, of course.", "That sounds good to me.", "The {} and the {} are both done.",
    "Can we look at the {} first?", "No, I have not seen the {}.", "Thanks, that helps.", "Please note: {} on Friday.",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recall", description=__doc__)
    parser.add_argument("--size", type=int, default=20_000, metavar="N", help="messages around (default: 20,000)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        db = SessionDB(Path(folder) / "state.db", synchronous="NORMAL")
        wanted = fill(db, args.size)
        db.reindex()
        ways: dict[str, Callable[[str], SearchHits]] = {
            "all words, as written": lambda query: found(db, " ".join(f'"{word}"' for word in query.split())),
            "all words, any form": lambda query: found(db, query),
            "and related messages": lambda query: found(db, query, related=True),
        }
        for name, search in ways.items():
            show(name, search, wanted)
        db.close()
    return 0


def fill(db: SessionDB, size: int) -> dict[str, int]:
    """Store everything for one person; which message each query wants."""
    rng = random.Random(11)
    topics = sorted({word for _, query, _, _ in EXCHANGES for word in query.split()})
    sentences = [said.format(*rng.choices(topics, k=said.count("{}"))) for said in rng.choices(_SENTENCES, k=size)]
    places = dict(zip(rng.sample(range(size), len(EXCHANGES)), EXCHANGES, strict=True))
    db.create_session("s0", "cli")
    wanted: dict[str, int] = {}
    session, roles = "s0", ("user", "assistant")
    for at, sentence in enumerate(sentences):
        if at % 50 == 0 and at:
            session = f"s{at // 50}"
            db.create_session(session, "cli")
        said = [sentence]
        if at in places:
            said += places[at][2]
        ids = db.append_messages(session, [{"role": roles[i % 2], "content": text} for i, text in enumerate(said)])
        if at in places:
            wanted[places[at][1]] = ids[1 + places[at][3]]
    return wanted


def found(db: SessionDB, query: str, *, related: bool = False) -> SearchHits:
    return db.search_messages(query, limit=HITS, related=related)


def show(name: str, search: Callable[[str], SearchHits], wanted: dict[str, int]) -> None:
    right: dict[str, list[bool]] = defaultdict(list)
    start = time.perf_counter()
    for kind, query, _, _ in EXCHANGES:
        right[kind].append(wanted[query] in [hit["id"] for hit in search(query)])
    took = (time.perf_counter() - start) * 1000 / len(EXCHANGES)
    each = ", ".join(f"{kind} {sum(one) / len(one):.2f}" for kind, one in right.items())
    every = [one for kind in right.values() for one in kind]
    print(f"  {name:<22}  recall@{HITS} {sum(every) / len(every):.2f}  ({each}; {took:.1f} ms a search)")


if __name__ == "__main__":
    raise SystemExit(main())
