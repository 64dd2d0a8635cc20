"""Pages that stay up to date: one look at the store for all of them, at most once a second.

A page hears two things: a *mark*, which differs when something may have changed (it then fetches itself again),
and that the store does not answer, or does again. What a page is told does not depend on what it shows, so that
a thousand open pages cost the store no more than one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

from oncron._clock import SECOND, boot_us, sleep_us, wait_us
from oncron._model import RunFilter, RunState
from oncron.errors import OncronError
from oncron.web._reading import Looks, Reading

log = logging.getLogger("oncron.web")

LOOK_EVERY = SECOND
CLIENTS = 500
"""Open streams at most."""
_STREAM_FOR = 60 * SECOND
"""Then the browser asks again: a server that is not ours may wait for open answers when it stops."""
_SIGN_EVERY = 15 * SECOND
_WAIT_FOR = 2 * SECOND
"""How long the store may be silent until pages say so."""
_REST, _REST_AT_MOST = 5, 15 * SECOND
"""A store that takes long to answer is left alone for so many times as long. One that does not is asked at once."""
_NEWEST, _RUNNING = 20, 100


@dataclass(frozen=True)
class Told:
    """What open pages know."""

    mark: str = ""
    trouble: str = ""
    """Why the store does not answer; "" while it does."""

    def event(self) -> bytes:
        what, said = ("trouble", {"why": self.trouble}) if self.trouble else ("mark", {"mark": self.mark})
        return b"event: " + what.encode() + b"\ndata: " + msgspec.json.encode(said) + b"\n\n"


class Live:
    """One per dashboard, of one event loop. It looks while somebody listens."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._clients: set[asyncio.Event] = set()
        self._looking: asyncio.Task[None] | None = None
        self._told = Told()
        self._closed = False

    @property
    def mark(self) -> str:
        """The newest one; "" while nobody listens, as it would be old."""
        return self._told.mark if self._looking is not None else ""

    @property
    def is_full(self) -> bool:
        return len(self._clients) >= CLIENTS

    def close(self) -> None:
        """Every stream ends, now and from now on."""
        self._closed = True
        for news in self._clients:
            news.set()

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events, until the client leaves, a minute has passed or `close`."""
        news = asyncio.Event()
        self._clients.add(news)
        self._begin()
        try:
            yield b"retry: 1000\n\n"
            heard: Told | None = None
            until = boot_us() + _STREAM_FOR
            while not self._closed and (left := until - boot_us()) > 0:
                told = self._told
                if told != heard and told != Told():
                    heard = told
                    yield told.event()
                elif not await wait_us(news, min(left, _SIGN_EVERY)):
                    yield b": still here\n\n"
                news.clear()
        finally:
            self._clients.discard(news)

    def _begin(self) -> None:
        if not self._closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="oncron-web-look")

    async def _look(self) -> None:
        try:
            while self._clients and not self._closed:
                began = boot_us()
                if _server_stops():
                    self.close()
                    break
                await self._look_once()
                took = boot_us() - began
                rest = 0 if self._told.trouble else min(_REST * took, _REST_AT_MOST)
                await sleep_us(max(LOOK_EVERY - took, rest))
        finally:
            self._looking, self._told = None, Told()

    async def _look_once(self) -> None:
        try:
            told = Told(mark=await self._reading.ask(_mark, within=_WAIT_FOR))
        except OncronError as error:
            told = Told(trouble=str(error))
        except Exception:
            log.exception("the dashboard could not look at the store")
            told = Told(trouble="the dashboard could not read the store; its log says why")
        if told != self._told:
            self._told = told
            for news in self._clients:
                news.set()


def _server_stops() -> bool:
    """Whether uvicorn was told to stop: it then waits for open answers, without a word to mounted applications. Its
    signal handler is a method of the server."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", None) is True


async def _mark(looks: Looks) -> str:
    """Of what may have changed: schedules, ticks, replicas, the newest runs and those that run."""
    poll = await looks.poll((), None)
    newest = await looks.runs(RunFilter(limit=_NEWEST))
    running = await looks.runs(RunFilter(state=RunState.RUNNING, limit=_RUNNING))
    runs = [
        (run.id, run.state, run.attempt, run.opening, run.progress, run.cancel_requested, run.ended_at)
        for run in (*newest, *running)
    ]
    seen = poll.version, poll.next_tick_at, sorted(poll.workers), poll.expired, runs
    return hashlib.sha256(msgspec.json.encode(seen)).hexdigest()[:16]
