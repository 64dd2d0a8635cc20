"""A small PgBouncer in transaction mode: clients share server connections, one transaction at a time.

It forgets who used a connection before, as the real one does: whatever a client left in its session, the
next one finds, and the client itself may not. Trust authentication only.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Self


class Pooler:
    """`async with` it: listens on `port`, with `size` connections to the server on `server_port`."""

    def __init__(self, server_port: int, database: str, user: str, size: int = 2) -> None:
        self._server_port = server_port
        self._startup = _startup(user, database)
        self._size = size
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._greeting = b""
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0
        self.transactions = 0

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            writer.write(self._startup)
            self._greeting = await _until_ready(reader)
            self._writers.append(writer)
            self._free.put_nowait((reader, writer))
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            await self._greet(client, out)
            while True:
                message = await _message(client)
                if message[:1] == b"X":
                    break
                await self._transaction(message, client, out)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            out.close()

    async def _greet(self, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        while True:
            size, code = struct.unpack("!ii", await client.readexactly(8))
            await client.readexactly(size - 8)
            if code == 196608:
                break
            out.write(b"N")  # no TLS, no GSS
        # BackendKeyData of nobody: a pooler cannot name the backend that will do the work.
        start = self._greeting.index(b"K\x00\x00\x00\x0c")
        fake = b"K" + struct.pack("!iii", 12, 1, 1)
        out.write(self._greeting[:start] + fake + self._greeting[start + 13 :])

    async def _transaction(self, message: bytes, client: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        reader, writer = await self._free.get()
        self.transactions += 1
        try:
            while True:
                writer.write(message)
                while message[:1] in b"PBDECH":  # of the extended protocol: answered with its Sync
                    message = await _message(client)
                    writer.write(message)
                answer = await _until_ready(reader)
                out.write(answer)
                if answer[-1:] == b"I":
                    break
                message = await _message(client)
        finally:
            self._free.put_nowait((reader, writer))


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


async def _until_ready(reader: asyncio.StreamReader) -> bytes:
    """Everything up to and with the next ReadyForQuery."""
    answer = b""
    while True:
        message = await _message(reader)
        answer += message
        if message[:1] == b"Z":
            return answer


def _startup(user: str, database: str) -> bytes:
    fields = b"".join(part.encode() + b"\0" for part in ("user", user, "database", database, "client_encoding", "UTF8"))
    body = struct.pack("!i", 196608) + fields + b"\0"
    return struct.pack("!i", len(body) + 4) + body
