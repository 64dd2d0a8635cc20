"""The pictures of a page, from what is on record."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from oncron import _defaults as limits
from oncron._clock_changes import ClockChange
from oncron._load import MINUTE
from oncron._model import Gap, RunRecord, ScheduleRecord
from oncron._why import of_gap
from oncron.web import pictures
from oncron.web._coming_load import ComingLoad
from oncron.web._page import link

_DAYS = 90
_MARGIN = 60


def marks_of(runs: Sequence[RunRecord], gaps: Sequence[Gap]) -> list[pictures.Mark]:
    found = [
        pictures.Mark(
            at=run.due_at if run.tick is None else run.tick,
            outcome=pictures.outcome_of_state(run.state.value),
            started_at=run.started_at,
            ended_at=run.ended_at,
            is_tick=run.tick is not None and run.backfill is None and not run.is_catchup,
            words=run.reason or "",
            href=link("run", id=run.id),
        )
        for run in runs
    ]
    return found + [
        pictures.Mark(
            at=gap.first,
            outcome=pictures.outcome_of_gap(gap.reason.value),
            is_tick=True,
            last=gap.last,
            count=gap.count,
            at_least=gap.at_least,
            words=of_gap(gap),
        )
        for gap in gaps
        if gap.count or gap.at_least
    ]


def past_pictures(
    row: ScheduleRecord,
    zone: str,
    runs: Sequence[RunRecord],
    gaps: Sequence[Gap],
    known_from: int,
    owed: Sequence[int],
    now: int,
) -> dict[str, Markup]:
    """SVG by name: what became of the ticks that are on record, those before `known_from` left out: of them only the
    gaps are known, and it would seem that nothing ran."""
    marks = [mark for mark in marks_of(runs, gaps) if (mark.last or mark.at) >= known_from]
    due = pictures.Outcome.WAITING
    marks += [pictures.Mark(at=tick, outcome=due, words="due, and nobody has fired it") for tick in owed]
    if not marks:
        return {}
    oldest = max(min(mark.at for mark in marks), now - _DAYS * limits.DAY, known_from)
    margin = max((now - oldest) // _MARGIN, 1_000_000)
    start, end = oldest - margin, now + margin
    name, timeout = row.name, row.definition.timeout
    drawn = {
        "timeline": _both(pictures.timeline, marks, schedule=name, zone=zone, start=start, end=end, now=now),
        "calendar": pictures.calendar(marks, schedule=name, zone=zone, start=oldest, end=now + 1, now=now),
        "durations": pictures.durations(marks, schedule=name, zone=zone, start=start, end=end, timeout=timeout),
        "lateness": pictures.latenesses(marks, schedule=name, zone=zone, start=start, end=end),
    }
    return {kind: Markup(svg) for kind, svg in drawn.items() if svg}  # noqa: S704 - the pictures escape what they show


def _both(draw: Callable[..., str], what: Sequence[object], **options: object) -> str:
    """For a desk and for a phone: the style sheet shows one of them."""
    return draw(what, **options) + draw(what, **options, slim=True, ident=f"{draw.__name__}-slim")


def coming_picture(
    row: ScheduleRecord, zone: str, ticks: Sequence[int], changes: Sequence[ClockChange], now: int
) -> Markup:
    """SVG."""
    jumps = [
        pictures.Jump(at=change.at, before=change.before, after=change.after, what=change.what) for change in changes
    ]
    drawn = _both(pictures.coming, ticks, schedule=row.name, zone=zone, now=now, jumps=jumps)
    return Markup(drawn)  # noqa: S704 - see above


def load_picture(load: ComingLoad, zone: str = "UTC") -> Markup:
    """SVG."""
    drawn = pictures.load_map(load.per_minute, first_minute=load.first // MINUTE, zone=zone)
    return Markup(drawn)  # noqa: S704 - see above
