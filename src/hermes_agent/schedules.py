"""Schedules: reads a person's text as a schedule, computes its instants, and says which are due or were missed.

A schedule is a cron expression in a zone, an interval, or one instant. Cron times are wall-clock times of the zone.
When the clock jumps over one, it happens once, at the first minute after the jump; when it comes twice, the first one
counts. Schedules whose minute or hour begins with `*` follow real time instead, as Debian's cron does. An interval is
a distance between instants. All instants are whole seconds since 1970.

`Schedule.settle` says what is due: instants that are late by at most their grace still run, earlier ones were missed.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from hermes_config.errors import UsageError

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

Kind = Literal["cron", "interval", "once"]
EXAMPLES = "every weekday at 8, every 2h, in 20 minutes, tomorrow at 9, 30 7 * * 1-5, 2027-01-31T09:00"
_SHORTEST_GRACE, _LONGEST_GRACE = 120, 7_200
_DAY = 86_400
_NEAR = 4 * 3_600
"""No clock is set back by more."""
_COUNTED = 20_000
"""How many missed instants are counted; a longer absence says "at least"."""
_LONGEST_TEXT = 200
_BOUNDS = "A minute is the shortest distance, and a hundred years the longest."
_LONGEST_SPAN = 100 * 366 * _DAY
_NAMED = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "hourly": "0 * * * *",
}  # fmt: skip
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": _DAY, "w": 7 * _DAY}
_SPAN = re.compile(
    r"(\d{1,9}(?:\.\d{1,3})?|an?)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z])"
    r"\s*(?:,|and)?\s*"
)
_NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_DAY_NAME = r"(?:sun|mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?)(?:days?)?"
_MONTHS = "janfebmaraprmayjunjulaugsepoctnovdec"
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_CLOCK = re.compile(
    r"(?<![\w:./-])(?:at\s+)?(?:(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s*(?P<half>am|pm|a\.m\.|p\.m\.)?(?:\s*o'?clock)?"
    r"|(?P<word>noon|midnight))(?![\w:/-]|\.\d)"
)
_PART = re.compile(r"\b(?:in the )?(morning|afternoon|evening|night)\b")
_REPEATED = re.compile(
    rf"(?P<every>(?:(?:every|each|weekly on|every week on) )?)(?P<days>daily|days?|weekdays?|weekends?"
    rf"|{_DAY_NAME}(?:(?:, | and | ){_DAY_NAME})*)"
)
_MONTHLY = re.compile(r"(?:every month|monthly) on (?:the |day )?(?P<day>[1-9]|[12]\d|3[01])(?:st|nd|rd|th|\.)?")
_ONE_DAY = re.compile(rf"(?:(?:on|this|next|the) )?(?P<when>|today|tomorrow|day after tomorrow|{_DAY_NAME})")
_DATE = re.compile(
    rf"(?:on )?(?:the )?(?:(?P<iso>\d{{4}}-\d\d-\d\d)|(?:(?P<day>\d\d?)(?:st|nd|rd|th|\.)?(?: of)? (?P<month>{_MONTH})"
    rf"|(?P<month_first>{_MONTH}) (?P<day_last>\d\d?)(?:st|nd|rd|th)?)(?:,? (?P<year>\d{{4}}))?)"
)
_DATE_WORD = (
    rf"(?:today|tonight|tom+or+ow|every|each|next|day\s+after|{_DAY_NAME}|{_MONTH}\s+\d+|at\s+\d+|noon|midnight"
    r"|in\s+\S+\s+(?:hours?|days?|weeks?|months?))(?![\w'’])"
)
_BEGINS = re.compile(rf"(?:on\s+|the\s+|this\s+)?{_DATE_WORD}")


class UnclearSchedule(UsageError):
    """The text is not a schedule."""


class _Wrong(UnclearSchedule):
    """The text is meant as a schedule, and the error says what is wrong with it."""


class Settled(NamedTuple):
    """The instants from the first due one until now."""

    fresh: list[Late]
    """Instants to run, oldest first."""
    missed: Missed | None
    next_at: float | None
    """The next instant after now; None: there is none."""


class Late(NamedTuple):
    instant: float
    late_after: float
    """From then on it counts as missed."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Consecutive instants that nobody ran."""

    first: float
    last: float
    count: int
    at_least: bool = False
    """There were more than are counted."""


@dataclass(frozen=True, slots=True)
class Schedule:
    kind: Kind
    expression: str
    """cron: five fields. interval: `SECONDS@FIRST`, the distance and one of the instants. once: the instant."""
    zone: str
    shown: str
    """The schedule for people."""

    def after(self, moment: float) -> float | None:
        """The first instant after `moment`; None: there is none."""
        return next(self._after(moment), None)

    def settle(self, first: float, now: float) -> Settled:
        """What to do with the due instants, beginning with `first`, which is one of them."""
        following = self._after(first)
        at, missed_to, count, at_least = first, first, 0, False
        fresh: list[Late] = []
        while at <= now:
            then = next(following, None)
            late_after = at + self._grace(at, then)
            if now <= late_after:
                fresh.append(Late(at, late_after))
            else:
                count, missed_to = count + 1, at
            if then is None:
                return Settled(fresh, _missed(first, missed_to, count, at_least), None)
            if count == _COUNTED and then < now - 3 * _DAY:  # it happens often: its last days name the last instant
                at_least, following = True, self._after(now - 3 * _DAY)
                then = next(following)
            at = then
        return Settled(fresh, _missed(first, missed_to, count, at_least), at)

    def latest(self, missed: Missed, most: int) -> list[float]:
        """The last instants of a gap, at most `most`, oldest first."""
        whole, found = missed.last - missed.first, list[float]()
        for span in (min(whole, 40.0 * _DAY), whole):  # most schedules need no longer look
            found = [missed.first] if span == whole else []
            for at in self._after(missed.last - span):
                if at > missed.last:
                    break
                found = [*found[-most + 1 :], at] if most > 1 else [at]
            if len(found) >= most or missed.at_least:
                break
        return found[-most:] or [missed.last]

    def _after(self, moment: float) -> Iterator[float]:
        if self.kind == "once":
            return iter([at] if (at := float(self.expression)) > moment else [])
        return _interval(self.expression, moment) if self.kind == "interval" else self._cron(moment)

    def _cron(self, moment: float) -> Iterator[float]:
        from cronsim import CronSim, CronSimError

        try:
            minute, hour, *_ = self.expression.split()
            walls = CronSim(self.expression, _wall_before(moment, zone := zone_named(self.zone, strict=True)))
        except (ValueError, CronSimError) as error:
            raise UnclearSchedule(
                f"not a schedule: {self.expression[:60]!r} ({error})", hint=f"Examples: {EXAMPLES}."
            ) from error
        by_clock = not minute.startswith("*") and not hour.startswith("*")
        # cronsim walks a clock without changes, where it is exact; the zone's changes are applied here.
        last, again = moment, list[float]()
        for wall in walls:
            first, second = _instants(wall, zone)
            if first is None:
                if not by_clock:
                    continue
                first = _valid(wall, self.zone)
            while again and again[0] < first:  # the repeated hour, for the second time
                if (at := again.pop(0)) > last:
                    yield at
                    last = at
            if second is not None and not by_clock:
                again.append(second)
            if first > last:
                yield first
                last = first

    def _grace(self, at: float, then: float | None) -> float:
        period = 2 * _LONGEST_GRACE if then is None else then - at
        return min(max(period / 2, _SHORTEST_GRACE), _LONGEST_GRACE)


def _wall_before(moment: float, zone: ZoneInfo) -> datetime:
    """The clock at a moment; somewhat earlier if the clock changes near it, as it may show the same time twice."""
    earlier, here, later = (datetime.fromtimestamp(moment // 1 + side * _NEAR, zone) for side in (-1, 0, 1))
    changes = not earlier.utcoffset() == here.utcoffset() == later.utcoffset()
    return (earlier if changes else here).replace(tzinfo=None, fold=0)


def _instants(wall: datetime, zone: ZoneInfo) -> tuple[float | None, float | None]:
    """When the clock shows this: (once, again); (None, None) for a time that it jumps over."""
    here = wall.replace(tzinfo=zone)
    first = here.timestamp()
    if datetime.fromtimestamp(first, zone).replace(tzinfo=None, fold=0) != wall:
        return None, None
    second = here.replace(fold=1).timestamp()
    return first, second if second != first else None


def _interval(expression: str, moment: float) -> Iterator[float]:
    seconds, first = (int(part) for part in expression.split("@"))
    steps = max(0, int((moment - first) // seconds + 1))
    while True:
        yield float(first + steps * seconds)
        steps += 1


def _missed(first: float, last: float, count: int, at_least: bool) -> Missed | None:
    return Missed(first, last, count, at_least) if count else None


def parse(text: str, *, now: float, zone: str) -> Schedule:
    """Read a schedule. `zone`: the IANA zone of the person who wrote it. Raises `UnclearSchedule`."""
    said = " ".join(text.split()).rstrip(" ,;:")
    rest, _, last = said.rpartition(" ")
    last = "UTC" if last.upper() == "UTC" else last
    if rest and (last == "UTC" or re.fullmatch(r"[A-Za-z]\w+/[\w/+-]+", last)) and zone_named(last).key == last:
        said, zone = rest, last
    try:
        made = _made(said, now, zone) if 0 < len(said) <= _LONGEST_TEXT else None
    except (ValueError, OverflowError):  # at the ends of the calendar, in some zones
        made = None
    if made is None:
        raise UnclearSchedule(f"not a schedule: {said[:60]!r}", hint=f"Examples: {EXAMPLES}.")
    if (then := made.after(now)) is None:
        never = "never happens" if made.kind == "cron" else "has passed"
        raise _Wrong(f"{said[:60]!r} {never}", hint=f"Examples: {EXAMPLES}.")
    if then > now + _LONGEST_SPAN:
        raise _Wrong(f"{said[:60]!r} is too far away", hint="A hundred years is the longest.")
    return made


def split(text: str, *, now: float, zone: str) -> tuple[Schedule, str]:
    """Read a schedule at the beginning or end of a text: `in 20 minutes take out the pizza` → (schedule, the rest)."""
    words = text.split()
    wrong: _Wrong | None = None
    for at_end in (False, True):
        for size in range(min(len(words), 10), 0, -1):
            said = words[-size:] if at_end else words[:size]
            try:
                made = parse(" ".join(said), now=now, zone=zone)
            except UnclearSchedule as error:
                wrong = wrong or (error if isinstance(error, _Wrong) else None)
                continue
            if not at_end and size < len(words) and said[-1].lower() in _DAYS:  # at 8 sun cream
                continue
            parts = text.rsplit(maxsplit=size)[:-size] if at_end else text.split(maxsplit=size)[size:]
            rest = parts[0].strip() if parts else ""
            _no_date_in(rest.lower(), " ".join(said), at_end=at_end)
            return made, re.sub(r"^(?:to|that|:)\s+", "", rest)
        if wrong is not None:
            raise wrong
    raise UnclearSchedule(f"no time in {' '.join(words)[:60]!r}", hint=f"Examples: {EXAMPLES}.")


def _no_date_in(rest: str, said: str, *, at_end: bool) -> None:
    """Refuse a text that keeps a part of the time: the rest of `at 8 eat tomorrow` is not about another time."""
    found = re.search(rf"\b{_DATE_WORD}", rest) if at_end else _BEGINS.match(rest)
    if not found and _CLOCK.fullmatch(said.lower()):
        found = re.search(rf"\b{_DATE_WORD}$", rest)
    if found:
        raise _Wrong(
            f"is {found[0]!r} a part of the time {said[:60]!r}?",
            hint="Then put it first, as in: tomorrow at 8 to TEXT. Else begin the text with another word.",
        )


def _made(said: str, now: float, zone: str) -> Schedule | None:
    low = said.lower()
    if low in _NAMED or re.fullmatch(r"(?:[\d*][\d*,/-]*\s+){2}(?:[\w*,/#-]+\s+){2}[\w*,/#-]+", low):
        return _cron(_NAMED.get(low, low), zone, said)
    low = re.sub(r"[a-z]+", lambda word: str(_NUMBERS.index(word[0])) if word[0] in _NUMBERS else word[0], low)
    low = re.sub(r"\btom+or+ow\b", "tomorrow", low.replace("half an hour", "30 minutes"))
    often = re.match(r"(?:every|each)\s+", low)
    seconds = _span(low[often.end() :] if often else low.removeprefix("in "))
    if seconds is not None:
        early = "too often" if often and seconds < 60 else "not in the future" if seconds <= 0 else ""
        if early or seconds > _LONGEST_SPAN:
            raise _Wrong(f"{said[:60]!r} is {early or 'too far away'}", hint=_BOUNDS)
        if not often:
            return _once(int(now) + seconds, zone)
        return Schedule("interval", f"{seconds}@{int(now) + seconds}", zone, f"every {_shown_span(seconds)}")
    today = datetime.fromtimestamp(now, zone_named(zone)).replace(tzinfo=None)
    low = low.replace("tonight", "today night")
    for clock in reversed(list(_CLOCK.finditer(low))):
        words, part = _parted(f"{low[: clock.start()]} {low[clock.end() :]}")
        if (words or part or not clock[0].isdecimal()) and (days := _days(words, part, today)) is not None:
            return _at(days, part, clock, said, now, zone)
    words, part = _parted(low)
    if _days(words, part, today) is not None:
        raise _Wrong(f"{said[:60]} at what time?", hint=f"For example: {said[:60]} at 9.")
    return _iso(said, zone)


def _parted(low: str) -> tuple[str, str]:
    """The words for the day, and the part of the day; `every morning` is `every day`."""
    part = found[1] if (found := _PART.search(low)) else ""
    words = " ".join(_PART.sub(" ", low).split()).strip(" ,")
    return f"{words} day" if part and words in ("every", "each") else words, part


def _days(said: str, part: str, today: datetime) -> str | list[datetime] | None:
    """The days of a phrase: days that repeat, as the end of a cron expression, or dates of which one is meant."""
    if said in ("weekly", "every week", "monthly", "every month"):
        example = "weekly on monday at 9" if "week" in said else "every month on the 1st at 9"
        raise _Wrong(f"{said} on which day?", hint=f"For example: {example}.")
    if (found := _REPEATED.fullmatch(said)) and (found["every"] or found["days"].endswith(("days", "ends", "daily"))):
        return f"* * {_weekdays(found['days'])}"
    if found := _MONTHLY.fullmatch(said):
        return f"{found['day']} * *"
    if found := _DATE.fullmatch(said):
        return _dates(found, today)
    if (found := _ONE_DAY.fullmatch(said)) is None:
        return None
    near = {"": (-1, 0, 1), "today": (-1, 0) if part else (0,), "tomorrow": (1,), "day after tomorrow": (2,)}
    if (name := found["when"][:3]) in _DAYS:
        first = (_DAYS[name] - today.isoweekday()) % 7
        near[found["when"]] = (first, first + 7)
    return [today + timedelta(days=step) for step in near[found["when"]]]


def _dates(found: re.Match[str], today: datetime) -> list[datetime]:
    if found["iso"]:
        year, month, day = map(int, found["iso"].split("-"))
    else:
        year, day = int(found["year"] or 0), int(found["day"] or found["day_last"])
        month = _MONTHS.index((found["month"] or found["month_first"])[:3]) // 3 + 1
    dates = []
    for each in [year] if year else range(today.year, today.year + 9):
        with contextlib.suppress(ValueError):
            dates.append(datetime(each, month, day))
    if not dates:
        raise _Wrong(f"there is no such date: {found[0]}", hint=f"Examples: {EXAMPLES}.")
    return dates


def _at(
    days: str | list[datetime], part: str, clock: re.Match[str], said: str, now: float, zone: str
) -> Schedule | None:
    hour, minute = _clock(clock, part)
    after_midnight = part == "night" and hour < 6
    if isinstance(days, str):
        if after_midnight and days != "* * *":
            return None  # the night before or after that day?
        return _cron(f"{minute} {hour} {days}", zone, said)
    for day in days:
        at = _valid((day + timedelta(days=after_midnight)).replace(hour=hour, minute=minute, second=0), zone)
        if at > now:
            return _once(at, zone)
    raise _Wrong(f"{said[:60]!r} has passed", hint=f"Examples: {EXAMPLES}.")


def _cron(expression: str, zone: str, shown: str) -> Schedule:
    from cronsim import CronSim, CronSimError

    try:
        CronSim(expression, datetime.now(UTC))
    except CronSimError as error:
        never = re.fullmatch(r"\S+ \S+ (?:30|31) \S+ \*", expression)
        why = "never happens" if never else f"cannot be read: {str(error).lower()}"
        raise _Wrong(f"the cron expression {shown[:60]!r} {why}", hint=f"Examples: {EXAMPLES}.") from None
    return Schedule("cron", " ".join(expression.split()), zone, shown)


def _once(instant: float, zone: str) -> Schedule:
    at = datetime.fromtimestamp(instant, zone_named(zone))
    return Schedule("once", str(int(instant)), zone, f"once, {at:%a %d %b %Y %H:%M}")


def _iso(said: str, zone: str) -> Schedule | None:
    if not re.fullmatch(r"\d{4}-?\d\d-?\d\d[Tt ]\d\d:?\d\d\S*", said):
        return None
    try:
        at = datetime.fromisoformat(said)
    except ValueError as error:
        raise _Wrong(f"there is no such time: {said[:60]} ({error})", hint=f"Examples: {EXAMPLES}.") from None
    return _once(_valid(at, zone) if at.tzinfo is None else int(at.timestamp()), zone)


def _valid(wall: datetime, zone: str) -> float:
    """A wall-clock time as an instant: the first of two; the first minute after a gap for one that does not exist."""
    wall, known = wall.replace(microsecond=0, fold=0), zone_named(zone)
    while (at := _instants(wall, known)[0]) is None:
        wall = wall.replace(second=0) + timedelta(minutes=1)
    return at


def _span(text: str) -> int | None:
    """`2 hours 30 minutes` in seconds; None when the text is not a span."""
    if re.fullmatch(r"minute|hour", text):
        text = f"1 {text}"
    sign = -1 if text.startswith("-") else 1
    total, at, larger = 0.0, len("-") if sign < 0 else 0, 0
    while at < len(text):
        found = _SPAN.match(text, at)
        size = _UNITS[found[2][0]] if found else 0
        if found is None or 0 < larger <= size:
            return None
        total += (1 if found[1].startswith("a") else float(found[1])) * size
        at, larger = found.end(), size
    return sign * round(total)


def _shown_span(seconds: int) -> str:
    for name, size in (("week", 7 * _DAY), ("day", _DAY), ("hour", 3_600), ("minute", 60)):
        if seconds % size == 0:
            number = seconds // size
            return name if number == 1 else f"{number} {name}s"
    return f"{seconds} seconds"


def _clock(found: re.Match[str], part: str) -> tuple[int, int]:
    if found["word"]:
        return (12 if found["word"] == "noon" else 0), 0
    hour, minute, half = int(found["hour"]), int(found["minute"] or 0), found["half"]
    if hour > 23 or minute > 59 or (half and not 1 <= hour <= 12):
        shown = found[0].removeprefix("at ").strip()
        raise _Wrong(f"there is no such time: {shown}", hint="The day goes from 0:00 (midnight) to 23:59.")
    if half:
        return hour % 12 + (12 if half.startswith("p") else 0), minute
    if part == "night" and hour == 12:
        return 0, minute
    later = part in ("afternoon", "evening") or (part == "night" and hour >= 6)
    return hour + (12 if later and 1 <= hour < 12 else 0), minute


def _weekdays(said: str) -> str:
    if said.startswith(("day", "daily")):
        return "*"
    if said.startswith("weekday"):
        return "1-5"
    if said.startswith("weekend"):
        return "0,6"
    numbers = sorted({_DAYS[word[:3]] for word in re.split(r"[\s,]+", said) if word != "and"})
    return ",".join(map(str, numbers))


# -- zones ---------------------------------------------------------------------------------------------------------


def zone_named(name: str, *, strict: bool = False) -> ZoneInfo:
    """The zone. One that this machine does not know is shown as UTC, but no job runs by it (`strict`: ValueError)."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        if strict:
            raise ValueError(f"this machine does not know the zone {name}") from None
        return ZoneInfo("UTC")


def zone_name(*names: str | None) -> str:
    """The first of these IANA names that is known here, else the machine's own, else UTC."""
    from zoneinfo import available_timezones

    link = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    try:
        written = Path("/etc/timezone").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        written = ""
    known = available_timezones()
    wanted = (*names, os.environ.get("TZ", "").lstrip(":"), link, written)
    return next((name for name in wanted if name and name in known), "UTC")


def written(instant: float) -> str:
    """An instant as text, such as 2026-11-16T07:30:00Z."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def wall_clock(instant: float, zone: str) -> str:
    """An instant as people of the zone write it."""
    return f"{datetime.fromtimestamp(instant, zone_named(zone)):%a %d %b %H:%M}"
