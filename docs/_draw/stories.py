"""Ticks, locks, clocks and leases: who does what, and when."""

from __future__ import annotations

from paper import BAD, BAND, FAINT, GOOD, INK, MUTED, WARN, Paper

from oncron import _defaults as limits


def lanes(paper: Paper, names: list[str], *, left: float, top: float, apart: float) -> list[float]:
    """A line of time for each, from the left; where they run."""
    found = [top + apart * number for number in range(len(names))]
    for name, y in zip(names, found, strict=True):
        paper.text(left - 14, y + 5, name, anchor="end")
        paper.arrow(left, y, paper.width - 16, y, colour=MUTED)
    return found


def lock_or_name() -> Paper:
    paper = Paper(
        860, 348, "A lock, and a name",
        "Three replicas come at the tick of 03:00, at slightly different moments. With a lock the first takes "
        "it, runs for a millisecond and lets it go; the second finds it free and runs the tick again; so does "
        "the third. With a name, the first moves the cursor from 02:00 to 03:00 in the step that makes the "
        "run; the second and the third find it moved, and write nothing.",
    )  # fmt: skip
    again = "finds it free: runs again"
    nothing = "cursor is at 03:00: nothing to do"
    _three(paper, 30, "A lock: is anybody at it now?", ("takes the lock, runs, lets go", again, again), twice=True)
    _three(paper, 200, "A name: has the cursor passed 03:00?", ("cursor 02:00 → 03:00, one run", nothing, nothing))
    return paper


def _three(paper: Paper, top: float, title: str, words: tuple[str, str, str], *, twice: bool = False) -> None:
    paper.text(20, top, title, bold=True, size=14)
    rows = lanes(paper, ["replica A", "replica B", "replica C"], left=110, top=top + 30, apart=38)
    paper.line(150, top + 14, 150, top + 120, colour=WARN, dash="4 3")
    paper.text(150, top + 138, "03:00", colour=WARN, anchor="middle", mono=True, size=12)
    for number, (y, word) in enumerate(zip(rows, words, strict=True)):
        x, later = 156 + 150 * number, number > 0
        if twice or not later:
            paper.box(x, y - 9, 44, 18, fill=BAD if later else GOOD)
        else:
            paper.dot(x + 38, y, colour=MUTED, radius=4)
        paper.text(x + 54, y - 6, word, colour=BAD if later and twice else INK, size=12.5)


def one_tick() -> Paper:
    paper = Paper(
        760, 470, "One tick, from fire to take-over",
        "Replica A fires the tick of 03:00: the store moves the cursor, records one run and leases it to A. "
        "Replica B asks 10 milliseconds later whether anything is still due, and hears no. If A ends the run, "
        "that is all. If A is killed, its lease expires; B reaps, the run is pending again; B claims it and "
        "gets a greater token, attempt 2. What A writes later with its old token is refused.",
    )  # fmt: skip
    a, store, b = 120, 380, 640
    for x, name in ((a, "replica A"), (store, "store"), (b, "replica B")):
        paper.box(x - 56, 14, 112, 28, fill=BAND, stroke=MUTED)
        paper.text(x, 33, name, anchor="middle", bold=True)
        paper.line(x, 42, x, 456, colour=FAINT)

    def say(y: float, start: float, end: float, words: str, *, answer: bool = False, colour: str = INK) -> None:
        paper.arrow(start, y, end, y, colour=colour, dash="5 4" if answer else "")
        paper.text((start + end) / 2, y - 6, words, anchor="middle", size=12.5, colour=colour)

    def note(y: float, words: str, colour: str = MUTED) -> None:
        paper.box(60, y - 15, 640, 22, fill=BAND)
        paper.text(380, y, words, anchor="middle", size=12.5, colour=colour)

    note(70, "both computed the tick 03:00 alone")
    say(106, a, store, "fire: cursor 02:00 → 03:00, one run")
    say(132, store, a, "fired: it is yours, token 7", answer=True)
    say(164, b, store, "10 ms later: anything still due?")
    say(190, store, b, "no", answer=True)
    say(222, a, store, "finish with token 7: succeeded")
    note(258, "or A is killed while it runs:", BAD)
    say(294, b, store, "reap: whose lease has expired?")
    say(320, store, b, "the run is pending again", answer=True)
    say(352, b, store, "claim")
    say(378, store, b, "the run, token 9, attempt 2", answer=True)
    say(414, a, store, "a late finish with token 7", colour=BAD)
    say(440, store, a, "lease lost: nothing changes", answer=True, colour=BAD)
    return paper


def clocks() -> Paper:
    skews = (("replica A, 400 ms fast", -400), ("replica B, right", 0), ("replica C, 300 ms slow", 300))
    paper = Paper(
        860, 300, "Whose clock says that a tick is due",
        "The store's clock reaches 03:00:00. By their own clocks replica A would fire 400 milliseconds early, "
        "B on time, C 300 milliseconds late. Each knows its offset from the store's answers, and fires when "
        "the store's clock says so; one that comes early all the same is refused.",
    )  # fmt: skip
    left, right, due = 200, 780, 490

    def x(ms: float) -> float:
        return due + ms * (right - left) / 1600

    paper.line(due, 54, due, 268, colour=GOOD, width=2)
    paper.text(due, 44, "03:00:00 by the store's clock", anchor="middle", colour=GOOD, bold=True)
    rows = lanes(paper, ["the store", *(name for name, _ in skews)], left=left, top=84, apart=52)
    for ms in (-600, -400, -200, 0, 200, 400, 600):
        paper.line(x(ms), rows[0] - 5, x(ms), rows[0] + 5, colour=MUTED, width=1)
        if ms:
            paper.text(x(ms), rows[0] - 10, f"{ms:+} ms", anchor="middle", colour=MUTED, size=11)
    for y, (_, skew) in zip(rows[1:], skews, strict=True):
        if skew:
            paper.cross(x(skew), y)
            words = "early, if it went by its own clock" if skew < 0 else "late, if it went by its own clock"
            paper.text(x(skew), y + 22, words, anchor="middle", colour=BAD, size=12)
        paper.dot(x(0), y)
    paper.text(due, 288, "each fires here, and one of them wins", anchor="middle", colour=GOOD, size=12.5)
    return paper


def lease() -> Paper:
    """To scale: the numbers are the defaults of the code."""
    length = limits.LEASE_FOR / limits.SECOND
    third, margin = length / 3, length / 6
    paper = Paper(
        860, 392, "A lease",
        f"A worker holds a run and renews its lease of {length:g} seconds every {third:g} seconds. First "
        f"story: it is killed. {length:g} seconds after its last heartbeat the lease has expired; within "
        f"another {third:g} seconds another replica reaps, and one claims the run with a greater token. Second "
        f"story: it is cut off from the store, or stopped. {margin:g} seconds before the lease expires it "
        "stops its tasks by itself; what it writes later is refused.",
    )  # fmt: skip
    left = 132
    scale = (paper.width - left - 30) / (2 * length + 2)

    def x(seconds: float) -> float:
        return left + seconds * scale

    killed = third + 2
    last = third

    def holding(y: float, until: float, colour: str) -> None:
        paper.box(x(0), y - 9, x(until) - x(0), 18, fill=colour)

    def beats(y: float) -> None:
        for at in (0.0, third):
            paper.arrow(x(at), y - 26, x(at), y - 10, colour=MUTED)

    paper.text(20, 26, "The worker is killed", bold=True, size=14)
    worker, other = lanes(paper, ["worker", "another"], left=left, top=78, apart=62)
    holding(worker, killed, GOOD)
    beats(worker)
    paper.text(x(0), worker - 32, "heartbeats", colour=MUTED, size=12)
    paper.cross(x(killed), worker)
    paper.text(x(killed) + 12, worker - 12, "SIGKILL", colour=BAD, size=12, bold=True)
    expired = last + length
    reaped = expired + third / 2
    for y in (worker, other):
        paper.line(x(expired), y - 34, x(expired), y + 20, colour=WARN, dash="4 3")
    paper.text(
        x(expired),
        worker - 40,
        f"{length:g} s after the last heartbeat: expired",
        anchor="middle",
        colour=WARN,
        size=12,
    )
    paper.dot(x(reaped), other, colour=WARN)
    paper.box(x(reaped) + 8, other - 9, x(2 * length + 1.4) - x(reaped) - 8, 18, fill=GOOD)
    paper.text(x(expired) + 8, other + 26, "reap, claim: attempt 2, a greater token", size=12)

    paper.text(20, 216, "The worker is cut off from the store", bold=True, size=14)
    worker, other = lanes(paper, ["worker", "another"], left=left, top=268, apart=62)
    doubt = expired - margin
    holding(worker, doubt, GOOD)
    beats(worker)
    paper.line(x(killed), worker - 22, x(killed), worker + 14, colour=BAD, width=2)
    paper.text(x(killed) + 8, worker - 14, "cable cut", colour=BAD, size=12, bold=True)
    paper.text(
        x(doubt) - 6,
        worker + 26,
        f"in doubt {margin:g} s before: its tasks are stopped",
        anchor="end",
        colour=WARN,
        size=12,
    )
    for y in (worker, other):
        paper.line(x(expired), y - 34, x(expired), y + 20, colour=WARN, dash="4 3")
    paper.text(x(expired), worker - 40, "expired", anchor="middle", colour=WARN, size=12)
    paper.dot(x(reaped), other, colour=WARN)
    paper.box(x(reaped) + 8, other - 9, x(2 * length + 1.4) - x(reaped) - 8, 18, fill=GOOD)
    late = 2 * length - 2
    paper.arrow(x(late), worker, x(late), other - 12, colour=BAD)
    paper.text(x(late) - 8, worker + 26, "with the old token: refused", colour=BAD, size=12, anchor="end")
    paper.text(x(expired) + 8, other + 26, "attempt 2: the store believes in one", size=12)
    return paper


def effect() -> Paper:
    paper = Paper(
        860, 262, "Where an effect and its record lie",
        "Three ways to do something once. Effect first, then the record: a crash between them repeats the "
        "effect. Record first, then the effect: a crash between them loses it. Effect and record in one "
        "commit: there is no between.",
    )  # fmt: skip
    for number, (name, first, second, what, colour) in enumerate((
        ("at least once", "effect", "record", "dies between: done, not on record, done again", BAD),
        ("at most once", "record", "effect", "dies between: on record, never done", BAD),
        ("exactly once", "effect and record", None, "one commit: there is no between", GOOD),
    )):  # fmt: skip
        y = 44 + 78 * number
        paper.text(122, y + 5, name, anchor="end", bold=True)
        paper.arrow(136, y, 830, y, colour=MUTED)
        if second is None:
            paper.box(190, y - 15, 300, 30, fill=GOOD)
            paper.text(340, y + 5, first, anchor="middle", colour="#ffffff", bold=True)
        else:
            for x, word in ((190, first), (390, second)):
                paper.box(x, y - 15, 100, 30, fill=GOOD if word == "effect" else INK)
                paper.text(x + 50, y + 5, word, anchor="middle", colour="#ffffff", bold=True)
            paper.cross(340, y)
        paper.text(510, y - 8, what, colour=colour, size=12.5)
    return paper
