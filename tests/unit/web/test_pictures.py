"""What all pictures have in common: words for what they show, nothing that a hostile name could do, a bounded size."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Sequence
from html.parser import HTMLParser

import pytest

from oncron.web import pictures
from oncron.web.pictures import Mark, Outcome, outcome_of_gap, outcome_of_state
from tests.unit.web.drawn import BERLIN, DAY, HOUR, MINUTE, SECOND, Drawn, on, ran

START, END = on(1), on(15)
HOSTILE = "</title></svg><script>alert('x')</script>\x00\x1b\u202e\ud800 \"'&"

Picture = Callable[..., str]
_PAST: dict[str, Picture] = {
    "timeline": lambda marks, name, **_: pictures.timeline(
        marks, schedule=name, zone=BERLIN, start=START, end=END, now=END - 1
    ),
    "calendar": lambda marks, name, **_: pictures.calendar(
        marks, schedule=name, zone=BERLIN, start=START, end=END, now=END - 1
    ),
    "durations": lambda marks, name, **_: pictures.durations(
        marks, schedule=name, zone=BERLIN, start=START, end=END, timeout=30 * SECOND
    ),
    "latenesses": lambda marks, name, **_: pictures.latenesses(marks, schedule=name, zone=BERLIN, start=START, end=END),
    "coming": lambda marks, name, **_: pictures.coming(
        [mark.at for mark in marks], schedule=name, zone=BERLIN, now=START - 1
    ),
}


@pytest.fixture(params=list(_PAST))
def draw(request: pytest.FixtureRequest) -> Callable[[Sequence[Mark]], Drawn]:
    """Call it with marks, and a name if it matters."""
    return lambda marks, name="report": Drawn(_PAST[request.param](marks, name))


def test_a_picture_is_an_image_whose_name_and_facts_are_words_in_it(draw: Callable[..., Drawn]) -> None:
    drawn = draw([ran(on(2, 3)), ran(on(3, 3), Outcome.FAILED)])

    assert drawn.root.get("role") == "img"
    ids = {element.get("id"): element for element in drawn.root.iter() if element.get("id")}
    assert ids[drawn.root.get("aria-labelledby")].text == drawn.title
    assert ids[drawn.root.get("aria-describedby")].text == drawn.desc
    assert "report" in drawn.title
    assert BERLIN in drawn.desc


def test_a_picture_asks_for_nothing_and_has_no_style_of_its_own(draw: Callable[..., Drawn]) -> None:
    drawn = draw([ran(on(2, 3), href="run?id=a&b"), ran(on(3, 3), Outcome.LOST, words="gone")])

    assert drawn.root.get("viewBox")
    names = {name for name, _ in drawn.attributes()}
    assert not names & {"style", "src", "fill", "stroke", "onload"}, "colours are the style sheet's"
    assert not {element.tag.rpartition("}")[2] for element in drawn.root.iter()} & {"script", "style", "image", "use"}
    assert {value for name, value in drawn.attributes() if name == "href"} <= {"run?id=a&b"}


@pytest.mark.parametrize("count", [1, 400])
def test_hostile_names_and_reasons_are_text(draw: Callable[..., Drawn], count: int) -> None:
    bad = [Mark(at=on(2) + n * HOUR // 2, outcome=Outcome.FAILED, words=HOSTILE) for n in range(count)]

    drawn = draw([ran(on(2, 3)), *bad], HOSTILE)

    assert "<script>alert('x')</script>" in drawn.title, "it is shown, not left out"
    seen: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: seen.append(tag)  # type: ignore[method-assign]
    parser.feed(drawn.markup)
    assert set(seen) <= {"svg", "title", "desc", "g", "path", "rect", "circle", "text", "a"}
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\ud800-\udfff]", drawn.markup)


def test_nothing_on_record_is_said_in_words(draw: Callable[..., Drawn]) -> None:
    drawn = draw([])

    assert re.search("no tick|no run|nothing", drawn.desc, re.IGNORECASE)


def test_one_tick_is_enough_for_a_picture(draw: Callable[..., Drawn]) -> None:
    drawn = draw([ran(on(2, 3))])

    assert any("2 Oct" in said for said in (*drawn.told, drawn.desc))


def test_ten_thousand_ticks_of_every_kind_stay_small_and_are_drawn_soon(draw: Callable[..., Drawn]) -> None:
    chance = random.Random(7)
    kinds = [*Outcome]
    marks = [
        ran(
            START + n * (END - START) // 10_000, chance.choice(kinds), late=int(chance.lognormvariate(10, 3)),
            took=int(chance.lognormvariate(15, 3)), words="<&>" * 100, href="run?id=0123456789abcdef",
        )
        for n in range(10_000)
    ]  # fmt: skip
    began = time.process_time()

    drawn = draw(marks)

    assert len(drawn.markup.encode()) < 150_000
    assert time.process_time() - began < 3


def test_marks_outside_the_stretch_are_left_out(draw: Callable[..., Drawn]) -> None:
    inside, outside = ran(on(2, 3)), [ran(START - DAY), ran(END + DAY), ran(END)]

    assert draw([inside, *outside]).told == draw([inside]).told or "coming" in draw([inside]).markup


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia"])
def test_every_zone_and_every_length_of_time_has_a_picture(zone: str) -> None:
    for length in (1, SECOND, MINUTE, HOUR, DAY, 31 * DAY, 400 * DAY, 5000 * DAY):
        start = on(25, 0, 30) - length // 2
        marks = [ran(start), ran(start + length // 2, Outcome.FAILED), ran(start + length - 1, Outcome.RUNNING)]
        for picture in (pictures.timeline, pictures.calendar):
            Drawn(picture(marks, schedule="s", zone=zone, start=start, end=start + length, now=start + length))
        for plot in (pictures.durations, pictures.latenesses):
            Drawn(plot(marks, schedule="s", zone=zone, start=start, end=start + length))


def test_states_and_reasons_become_outcomes() -> None:
    states = ("pending", "running", "succeeded", "failed", "lost", "cancelled", "skipped")
    assert [outcome_of_state(state).value for state in states] == ["waiting", *states[1:]]
    assert {outcome_of_gap(reason) for reason in ("overlap", "unique", "limit", "guard", "paused")} == {Outcome.SKIPPED}
    passed = ("missed", "too_old", "changed", "dormant", "removed", "store_rolled_back")
    assert {outcome_of_gap(reason) for reason in passed} == {Outcome.MISSED}
