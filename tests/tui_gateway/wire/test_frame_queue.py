"""What waits for a client: order, batches, and the end of patience."""

from __future__ import annotations

import os
import threading

from tui_gateway.wire import frames
from tui_gateway.wire.frame_queue import BATCH_SECONDS, FrameQueue
from tui_gateway.wire.transports import StdioTransport


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def delta(text: str, sid: str = "a") -> frames.Frame:
    return frames.event("message.delta", sid, {"text": text})


def texts(given: list[str]) -> list[object]:
    found = [frames.parse(one)["params"] for one in given]
    return [one.get("payload", {}).get("text", one["type"]) for one in found]


def test_deltas_wait_a_moment_and_come_together() -> None:
    clock = Clock()
    out = FrameQueue(lambda: None, most_bytes=1_000, clock=clock)
    assert all(out.put(delta(piece)) for piece in "abc")
    ready, wait = out.take()
    assert not ready and wait is not None and 0 < wait <= BATCH_SECONDS
    clock.now += BATCH_SECONDS
    ready, wait = out.take()
    assert texts(ready) == ["abc"] and wait is None


def test_any_other_frame_sends_them_off_first() -> None:
    out = FrameQueue(lambda: None, most_bytes=10_000, clock=Clock())
    for frame in (
        delta("a"),
        delta("b"),
        frames.event("message.complete", "a", {"text": "ab"}),
        delta("c"),
        delta("d", "b"),
    ):
        out.put(frame)
    ready, wait = out.take()
    assert texts(ready) == ["ab", "ab", "c"] and wait is not None, "the last one may still grow"


def test_a_delta_that_carries_more_stays_as_it_is() -> None:
    out = FrameQueue(lambda: None, most_bytes=10_000, clock=Clock())
    out.put(frames.event("message.delta", "a", {"text": "x", "rendered": "X"}))
    out.put(frames.event("message.delta", "a", {"text": "y", "rendered": "Y"}))
    assert texts(out.take()[0]) == ["x", "y"]


def test_what_is_no_number_is_nothing_in_json() -> None:
    frame = frames.event("tool.complete", "a", {"args": {"x": [float("nan"), 1.5, float("inf")]}})
    assert frames.parse(frames.encode(frame))["params"]["payload"]["args"] == {"x": [None, 1.5, None]}


def test_a_client_that_never_reads_is_let_go_and_nobody_waits_for_it() -> None:
    out = FrameQueue(lambda: None, most_bytes=5_000, clock=Clock())
    puts = [out.put(frames.event("tool.output", "a", {"text": "x" * 100})) for _ in range(100)]
    assert puts[0] and not puts[-1] and out.overfull
    assert puts == sorted(puts, reverse=True), "once it is over it stays over"


def test_deltas_that_nobody_reads_count_as_they_grow_together() -> None:
    out = FrameQueue(lambda: None, most_bytes=5_000, clock=Clock())
    assert not all(out.put(delta("x" * 100)) for _ in range(100)) and out.overfull


def test_one_large_frame_is_no_reason_to_let_a_client_go() -> None:
    out = FrameQueue(lambda: None, most_bytes=1_000, clock=Clock())
    large, small = "x" * 5_000, frames.event("tool.output", "a", {"text": "y" * 100})
    assert out.put(frames.event("tool.output", "a", {"text": large})) and out.put(small)
    assert texts(out.take()[0]) == [large, "y" * 100]
    assert out.put(frames.event("tool.output", "a", {"text": large}))
    assert [out.put(small) for _ in range(10)][-1] is False, "what piles up behind it counts"


def test_a_client_that_reads_too_late_finds_the_end() -> None:
    reading, writing = os.pipe()
    lost = threading.Event()
    with os.fdopen(reading, "rb") as there, os.fdopen(writing, "w", encoding="utf-8") as here:
        transport = StdioTransport(lambda: here, most_bytes=1_000)
        transport.lost = lost.set
        transport.write(frames.event("tool.output", "a", {"text": "x" * 1_000_000}))  # more than a pipe holds
        small = frames.event("tool.output", "a", {"text": "y" * 100})
        assert not all(transport.write(small) for _ in range(100)) and not lost.is_set()
        there.readline()
        assert lost.wait(10)
