"""A way to a server that can be cut, swallowed, narrowed, closed and healed: a TCP proxy on loopback.

All proxies of a process live on one event loop in a thread of their own, so that tests of any kind, and
replicas as processes, go through them while the test itself does something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Literal, Self, TypeVar

T = TypeVar("T")
Direction = Literal["up", "down"]
"""To the server, and from it."""

_CHUNK = 16 * 1024


class Proxy:
    """Listens on `port`, which stays the same, and leads to `target_port`. Every method has taken effect when it
    returns; `heal` takes all of them back."""

    def __init__(self, target_port: int) -> None:
        self._target = target_port
        # Bound and silent as long as the proxy lives: nobody else gets the port while nothing listens on it.
        self._place = _bound(0)
        self.port: int = self._place.getsockname()[1]
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._latency = 0.0
        self._rate = 0.0
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.accepted = 0
        """Connections since the beginning."""
        _done(self._start())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing of it is left: connections are reset, the port is free."""

        def end() -> None:
            self._stop_listening()
            for link in list(self._links):
                link.reset()

        _called(end)
        self._place.close()

    @property
    def connections(self) -> int:
        """How many are open just now, silenced ones included."""
        return _called(lambda: len(self._links))

    # --- what happens to a way --------------------------------------------------------

    def cut(self) -> int:
        """Every connection is reset, on both sides; new ones are welcome. Returns how many there were."""

        def cut() -> int:
            links = list(self._links)
            for link in links:
                link.reset()
            return len(links)

        return _called(cut)

    def swallow(self, *directions: Direction) -> None:
        """A black hole, both ways if none is named: connections stay open, nothing is read from them and nothing
        comes out of them. What went in goes on its way when the proxy heals, however late."""
        _called(lambda: [self._open[direction].clear() for direction in directions or ("up", "down")])

    def forget(self) -> int:
        """The connections of this moment stay open and are silent for good: a router has lost its table. New ones
        are welcome. `heal` does not bring them back, it resets them. Returns how many there were."""

        def forget() -> int:
            for link in self._links:
                link.forgotten = True
            return len(self._links)

        return _called(forget)

    def slow(self, latency: float, bytes_per_second: float) -> None:
        """Whatever passes takes `latency` seconds longer in each direction, and its size's time."""

        def slow() -> None:
            self._latency, self._rate = latency, 1 / bytes_per_second

        _called(slow)

    def refuse(self) -> None:
        """New connections are refused; those that are open stay."""
        _called(self._stop_listening)

    def heal(self) -> None:
        """As at first, but for what was cut or forgotten."""

        async def heal() -> None:
            self._latency = self._rate = 0.0
            for link in [link for link in self._links if link.forgotten]:
                link.reset()
            for way in self._open.values():
                way.set()
            if self._server is None:
                await self._start()

        _done(heal())

    # --- on the loop ------------------------------------------------------------------

    async def _start(self) -> None:
        for way in self._open.values():
            way.set()
        self._server = await asyncio.start_server(self._serve, sock=_bound(self.port))

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(writer)
        self._links.add(link)
        try:
            await self._open["up"].wait()
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            link.writers.append(server_writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._carry(link, "up", reader, server_writer))
                ways.create_task(self._carry(link, "down", server_reader, writer))
        except* (OSError, _Over):
            pass  # one side has left: so does the other
        finally:
            link.reset()
            self._links.discard(link)

    async def _carry(
        self, link: _Link, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await self._open[direction].wait()
            data = await reader.read(_CHUNK)
            await asyncio.sleep(self._latency + len(data) * self._rate)
            await self._open[direction].wait()
            if link.forgotten:
                await link.over.wait()
            if not data or link.over.is_set():
                raise _Over
            writer.write(data)
            await writer.drain()


class _Over(Exception):
    """One side has closed its half, or was reset."""


class _Link:
    """One connection from a client, and its other half."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]
        self.forgotten = False
        self.over = asyncio.Event()

    def reset(self) -> None:
        """RST to both: what was on its way is lost."""
        self.over.set()
        for writer in self.writers:
            end: socket.socket | None = writer.get_extra_info("socket")
            if end is not None and end.fileno() >= 0:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


def _bound(port: int) -> socket.socket:
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", port))
    return place


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of every proxy. Its thread ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="proxies", daemon=True).start()
    return loop


def _done(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(work, _loop()).result(10)


def _called(work: Callable[[], T]) -> T:
    async def call() -> T:
        return work()

    return _done(call())
