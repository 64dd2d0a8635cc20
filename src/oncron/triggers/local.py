"""Rules in local time: the one place where wall clocks become instants.

A rule names local days and times of day; a zone says which instants those are. Where the
zone's offset jumps, a local time may not exist, or exist twice, and what then happens is
decided here and nowhere else, for cron and for the calendar triggers alike:

* A wildcard rule follows the clock: its ticks are the instants whose local time matches.
* A fixed-time rule, at a jump forward of less than three hours: what fell into the skipped
  interval happens once, at the instant of the jump (`gap="next"`), not at all (`"skip"`), or
  at the same distance from the last midnight (`"shift"`: 02:30 becomes 03:30).
* A fixed-time rule, at a jump back of up to three hours: of the two occurrences the first,
  the second or both (`fold`).
* A greater jump is a change of zone: the local times it skips never were, and those it
  repeats are new ones.

The three hours are the limits Debian's cron draws.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime
from typing import Literal, get_args

from oncron._clock import EPOCH
from oncron.errors import InvalidTrigger
from oncron.triggers.days import NO_DAY, DayRule
from oncron.triggers.times import TimesOfDay
from oncron.triggers.trigger import MAX_US, MIN_US, Trigger
from oncron.triggers.zones import LAST_SECOND, Zone, load_zone

Gap = Literal["next", "skip", "shift"]
Fold = Literal["first", "second", "both"]

_DAY = 86_400
_LIMIT = 3 * 3600
_NEVER = 1 << 60
_NO_WINDOW = (0, 0, 0)


class LocalTimes:
    """Local days and times of day in a zone (UTC until one is given), as instants."""

    __slots__ = ("_days", "_fixed", "_fold", "_gap", "_times", "_timezone", "_window", "_zone")

    def __init__(
        self, days: DayRule, times: TimesOfDay, *, timezone: str | None, gap: Gap, fold: Fold, fixed: bool = True
    ) -> None:
        self._days, self._times, self._fixed = days, times, fixed
        self._gap: Gap = gap
        self._fold: Fold = fold
        self._timezone = timezone
        self._zone: Zone = load_zone("UTC" if timezone is None else timezone)
        # The last day looked at, if no jump is near it: seconds [start, end) whose next tick
        # lies on that day, and the second of its local midnight. One tuple, so that threads
        # may share the trigger.
        self._window = _NO_WINDOW

    def next_after_us(self, t: int, /) -> int | None:
        """The first instant strictly after `t`, both in microseconds; None after the last."""
        second = t // 1_000_000
        start, end, midnight = self._window
        if start <= second < end:
            return (midnight + self._times.after(second - midnight)) * 1_000_000
        if not MIN_US <= t < MAX_US:
            if t >= MAX_US:
                return None
            second = MIN_US // 1_000_000
        found = self._search(second)
        return found * 1_000_000 if found <= LAST_SECOND else None

    def first_local_in(self, start: int, end: int) -> int | None:
        """The first local second in [start, end) that the rule names, jumps disregarded."""
        found = self._next_local(start - 1)
        return found if found < end else None

    def ticks_us(self, a: int, b: int) -> list[int]:
        """The instants in (a, b], ascending."""
        found: list[int] = []
        tick = self.next_after_us(a)
        while tick is not None and tick <= b:
            found.append(tick)
            tick = self.next_after_us(tick)
        return found

    def _search(self, second: int) -> int:
        """The first tick after a UTC second, or a number past LAST_SECOND."""
        zone = self._zone
        if second >= zone.until:
            zone.reach(second)
        jumps, offsets = zone.jumps, zone.offsets
        index = bisect_right(jumps, second)
        # Most questions: no jump near the instant, nor near the day of the answer.
        local = None
        calm = jumps[index - 1] + _LIMIT if index else -_NEVER
        if second >= calm:
            offset = offsets[index]
            local = self._next_local(second + offset)
            midnight = local - local % _DAY - offset
            latest = midnight + self._times.last
            if latest < (jumps[index] - _LIMIT if index < len(jumps) else zone.until) and latest <= LAST_SECOND:
                if midnight > calm:
                    self._window = (midnight - 1, latest, midnight)
                return local - offset
        return self._across_jumps(second, index, local)

    def _across_jumps(self, second: int, index: int, local: int | None) -> int:
        """The same from stretch `index` on, with all that the jumps mean; `local` is the next
        local second where that is known already."""
        zone = self._zone
        jumps, offsets = zone.jumps, zone.offsets
        while True:
            # Between two jumps local time is UTC plus a constant.
            offset = offsets[index]
            after = second
            moved = _NEVER
            if index and self._fixed and second < jumps[index - 1] + _LIMIT:
                after, moved = self._past_jump(second, index)
            if local is None:
                local = self._next_local(after + offset)
            found = min(moved, local - offset)
            if found >= zone.until and found <= LAST_SECOND:
                zone.reach(found)
            end = jumps[index] if index < len(jumps) else _NEVER
            if found < self._last_before(index, end):
                return found
            if end == _NEVER:
                return _NEVER
            index += 1
            if end > second + 2 * _DAY:
                # No tick between here and `local`: pass over the jumps in between.
                index = max(index, bisect_right(jumps, local - 2 * _DAY))
            second, local = max(second, jumps[index - 1] - 1), None

    def _past_jump(self, second: int, index: int) -> tuple[int, int]:
        """What the jump that begins stretch `index` means for a fixed-time rule: the second
        after which its ordinary ticks count, and the first tick after `second` that the jump
        moved (_NEVER if none)."""
        jump = self._zone.jumps[index - 1]
        before, offset = self._zone.offsets[index - 1], self._zone.offsets[index]
        size = offset - before
        if 0 < size < _LIMIT and self._gap != "skip":
            shift = self._gap == "shift"
            since = max(second, jump - 1) if shift else jump - 1
            missing = self._next_local(since + before)
            if missing < jump + offset:
                if shift:
                    return second, missing - before
                if second < jump:
                    return second, jump
        elif -_LIMIT <= size < 0 and self._fold == "first":
            return max(second, jump - size - 1), _NEVER
        return second, _NEVER

    def _last_before(self, index: int, end: int) -> int:
        """The second at which stretch `index` stops counting: its end, or the start of the
        first of two passes of which the second is wanted."""
        if self._fixed and self._fold == "second" and end != _NEVER:
            size = self._zone.offsets[index + 1] - self._zone.offsets[index]
            if -_LIMIT <= size < 0:
                return end + size
        return end

    def _next_local(self, local: int) -> int:
        """The first local second after `local` that the rule names, jumps disregarded."""
        day, second = divmod(local, _DAY)
        found = self._days.next_day(day)
        if found == day:
            if second < self._times.last:
                return day * _DAY + self._times.after(second)
            found = self._days.next_day(day + 1)
        return found * _DAY + self._times.first if found != NO_DAY else _NEVER


class LocalTrigger(LocalTimes, Trigger):
    """A trigger made of local days and times of day."""

    __slots__ = ("_text",)

    def next_after(self, t: datetime) -> datetime | None:
        # The shortest way from datetime to datetime: ticks are whole seconds.
        if type(t) is not datetime or t.tzinfo is not UTC:
            return super().next_after(t)
        since = t - EPOCH
        second = since.days * _DAY + since.seconds
        start, end, midnight = self._window
        if start <= second < end:
            return datetime.fromtimestamp(midnight + self._times.after(second - midnight), UTC)
        found = self._search(max(second, MIN_US // 1_000_000))
        return datetime.fromtimestamp(found, UTC) if found <= LAST_SECOND else None

    @property
    def timezone(self) -> str | None:
        return self._timezone

    @property
    def is_bound(self) -> bool:
        return self._timezone is not None

    @property
    def zone(self) -> Zone:
        """The zone its times are read in."""
        return self._zone

    @property
    def times(self) -> TimesOfDay:
        """Its times of day."""
        return self._times

    @property
    def gap(self) -> Gap:
        """What becomes of local times that a jump skips."""
        return self._gap

    @property
    def fold(self) -> Fold:
        """Which of two occurrences of a local time count."""
        return self._fold

    @property
    def follows_clock(self) -> bool:
        """Whether it is a wildcard job: not in a skipped hour, twice in a repeated one."""
        return not self._fixed


def check_options(gap: object, fold: object, expression: object) -> None:
    """Raise InvalidTrigger unless both are words that mean something."""
    for field, value, words in (("gap", gap, get_args(Gap)), ("fold", fold, get_args(Fold))):
        if value not in words:
            raise InvalidTrigger(
                f"{field}={value!r} means nothing",
                expression=expression,
                field=field,
                mend=f"write {', '.join(map(repr, words))}",
            )
