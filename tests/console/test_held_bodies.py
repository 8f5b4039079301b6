# SPDX-License-Identifier: Apache-2.0
"""The console holds so many bytes of bodies at a time, and gives memory back after large ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from headrace.console.http import body_memory
from headrace.console.http.body_memory import LARGE_HELD_MAX, SMALL_HELD_MAX, BodyMemory, ByteBudget
from headrace.console.http.limits import STRANGERS_BYTES_MAX
from headrace.console.http_errors import HttpError
from support.brokers.broker_process import until
from support.console import basic
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.console import HttpAnswer, LocalConsole

MIB = 1 << 20
LARGE = b'{"queues": []' + b" " * (2 * MIB) + b"}"


@pytest.fixture
def held(console: LocalConsole) -> Iterator[BodyMemory]:
    """The bodies of the console; none is held before and after."""
    assert console.console is not None
    found = console.console._applications[0]._bodies
    yield found
    until(lambda: not found.large.held and not found.small.held, "no body is held")
    assert not found.large._waiters
    assert not found.small._waiters


def imported(console: LocalConsole) -> HttpAnswer:
    return console.ask("POST", "/api/definitions", LARGE)


async def take_all(held: BodyMemory) -> None:
    await held.acquire(LARGE_HELD_MAX)


async def give_all(held: BodyMemory) -> None:
    held.release(LARGE_HELD_MAX)


def test_an_import_waits_for_others_and_small_changes_do_not(
    console: LocalConsole, held: BodyMemory
) -> None:
    console.run(take_all(held))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(imported, console)
        until(lambda: held.large._waiters, "the import waits")
        assert console.ask("PUT", "/api/queues/%2F/meanwhile", {}).status == 201
        assert console.ask("DELETE", "/api/queues/%2F/meanwhile").status == 204
        console.run(give_all(held))
        assert waiting.result(PATIENCE_S).status == 204


def test_an_import_that_waits_for_too_long_is_told_so(
    console: LocalConsole, held: BodyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads the answer, although it is sending."""
    monkeypatch.setattr(body_memory, "WAIT_S", 0.0)
    console.run(take_all(held))
    try:
        answer = imported(console)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        assert answer.json["reason"].startswith("bodies of 32 MiB are held at a time; send")
        with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
            end.sendall(head(len(LARGE), "Expect: 100-continue\r\n"))
            assert end.recv(100).startswith(b"HTTP/1.1 503 ")  # It need not send the body.
    finally:
        console.run(give_all(held))


def head(length: int, more: str = "") -> bytes:
    start = "POST /api/definitions HTTP/1.1\r\nHost: localhost\r\n"
    rest = f"Authorization: {basic('guest', 'guest')}\r\nContent-Length: {length}\r\n{more}\r\n"
    return f"{start}{rest}".encode()


def test_parallel_imports_hold_no_more_than_their_purse(
    console: LocalConsole, held: BodyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All are imported, one after the other."""
    monkeypatch.setattr(held.large, "_bytes_max", 5 * MIB)
    most = []
    fits = ByteBudget._fits

    def seen(purse: ByteBudget, size: int) -> bool:
        most.append(purse.held)
        return fits(purse, size)

    monkeypatch.setattr(ByteBudget, "_fits", seen)
    with ThreadPoolExecutor(16) as pool:
        answers = [one.result() for one in [pool.submit(imported, console) for _ in range(16)]]
    assert {one.status for one in answers} == {204}
    assert max(most) == 2 * len(LARGE)


def test_a_client_that_hangs_up_gives_its_bytes_back(
    console: LocalConsole, held: BodyMemory
) -> None:
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        end.sendall(head(100 * MIB) + b"{")
        until(lambda: held.large.held == LARGE_HELD_MAX, "its body is read")


def test_a_body_of_unknown_length_may_be_as_long_as_any(
    console: LocalConsole, held: BodyMemory
) -> None:
    with socket.create_connection(("127.0.0.1", console.port), PATIENCE_S) as end:
        sent = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
        end.sendall(sent + b"1\r\n{\r\n")
        until(lambda: held.large.held == LARGE_HELD_MAX, "its body is read")
        end.sendall(b"1\r\n}\r\n0\r\n\r\n")
        assert end.recv(100).startswith(b"HTTP/1.1 204 ")


def test_memory_goes_back_after_the_last_large_body(
    console: LocalConsole, held: BodyMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned = threading.Event()
    monkeypatch.setattr(body_memory, "RETURN_S", 0.0)
    monkeypatch.setattr(body_memory, "trim_memory", returned.set)
    assert console.ask("PUT", "/api/queues/%2F/small", {}).status == 201
    assert console.ask("DELETE", "/api/queues/%2F/small").status == 204
    assert not returned.is_set()
    assert imported(console).status == 204
    assert returned.wait(PATIENCE_S)


def test_strangers_bodies_are_short(console: LocalConsole) -> None:
    for path in ("/login", "/api/login"):
        body = b"username=a&password=" + b"x" * STRANGERS_BYTES_MAX
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = console.ask("POST", path, body, user=None, headers=kind)
        assert answer.status == 400
        assert b"size limit" in answer.body


# --- The purse -----------------------------------------------------------------------------------


def test_the_purse_serves_in_order() -> None:
    asyncio.run(in_order())


async def in_order() -> None:
    purse = ByteBudget(10)
    done: list[str] = []

    async def take(name: str, size: int) -> None:
        await purse.acquire(size)
        done.append(name)

    await take("first", 6)
    tasks = [asyncio.create_task(take(*one)) for one in (("large", 100), ("small", 1), ("last", 4))]
    await asyncio.sleep(0)
    assert done == ["first"]  # None overtakes the large one.
    purse.release(6)
    await asyncio.wait([tasks[0]])
    assert (done, purse.held) == (["first", "large"], 10)
    purse.release(100)
    await asyncio.gather(*tasks)
    assert (done[2:], purse.held) == (["small", "last"], 5)


def test_those_who_leave_the_line_take_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(leaving(monkeypatch))


async def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    purse = ByteBudget(10)
    await purse.acquire(5)
    gone = asyncio.create_task(purse.acquire(6))
    behind = asyncio.create_task(purse.acquire(5))
    await asyncio.sleep(0)
    gone.cancel()
    await behind  # It fits, now that none is before it.
    assert purse.held == 10
    late = asyncio.create_task(purse.acquire(5))
    await asyncio.sleep(0)
    purse.release(5)  # The turn and the cancellation come together.
    late.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await late
    assert purse.held == 5
    monkeypatch.setattr(body_memory, "WAIT_S", 0.0)
    with pytest.raises(HttpError, match="are held at a time"):
        await purse.acquire(6)
    purse.release(5)
    assert (purse.held, list(purse._waiters)) == (0, [])


def test_purses_are_as_large_as_they_say() -> None:
    some = BodyMemory()
    assert (some.small._bytes_max, some.large._bytes_max) == (SMALL_HELD_MAX, LARGE_HELD_MAX)
