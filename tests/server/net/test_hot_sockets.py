# SPDX-License-Identifier: Apache-2.0
"""The broker's loop: transports are served by the selector, all else is asyncio's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from headrace.client import Message, connect
from headrace.model.counters import Counters
from headrace.protocol.endpoint import Endpoint
from headrace.protocol.output import BufferPool
from headrace.server.net.hot_sockets import HotLoop, HotSelector
from headrace.server.net.transport import Reactor, Transport
from headrace.testing.broker import LocalBroker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator


def run(main: Coroutine[None, None, list[object]]) -> list[object]:
    with asyncio.Runner(loop_factory=HotLoop) as runner:
        return runner.run(main)


@pytest.fixture
def selector() -> Iterator[HotSelector]:
    with contextlib.closing(HotSelector()) as made:
        yield made


def test_it_is_a_selector_to_asyncio(selector: HotSelector) -> None:
    here, there = socket.socketpair()
    with here, there:
        key = selector.register(here, selectors.EVENT_READ, "data")
        assert selector.get_key(here) == selector.get_key(here.fileno()) == key
        assert dict(selector.get_map()) == {here.fileno(): key}
        assert selector.select(0) == []
        there.send(b"x")
        assert selector.select() == [(key, selectors.EVENT_READ)]
        both = selector.modify(here, selectors.EVENT_READ | selectors.EVENT_WRITE, "more")
        assert selector.select(1) == [(both, selectors.EVENT_READ | selectors.EVENT_WRITE)]
        assert selector.modify(here, both.events, "other").data == "other"
        with pytest.raises(KeyError, match="already registered"):
            selector.register(here, selectors.EVENT_READ)
        assert selector.unregister(here).data == "other"
        for gone in (selector.unregister, selector.get_key):
            with pytest.raises(KeyError):
                gone(here)
        assert selector.select(-1) == []


def test_a_closed_file_can_be_forgotten(selector: HotSelector) -> None:
    here, there = socket.socketpair()
    key = selector.register(here.fileno(), selectors.EVENT_READ)
    here.close()
    there.close()
    assert selector.unregister(key.fd) == key


def test_the_end_of_a_peer_is_both_input_and_output(selector: HotSelector) -> None:
    here, there = socket.socketpair()
    with here:
        key = selector.register(here, selectors.EVENT_READ | selectors.EVENT_WRITE)
        there.close()
        assert selector.select(1) == [(key, key.events)]


def test_tasks_timers_streams_threads_subprocesses_and_signals_are_asyncios() -> None:
    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        said: list[object] = []
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readline())
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"line\n")
        said.append(await reader.readline())
        writer.close()
        server.close()
        said.append(await asyncio.to_thread(lambda: "thread"))
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('child')", stdout=asyncio.subprocess.PIPE
        )
        said.append((await child.communicate())[0])
        os.kill(os.getpid(), signal.SIGUSR1)
        await heard.wait()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        return said

    assert run(main()) == [b"line\n", "thread", b"child\n"]


async def talk(url: str, queue: str) -> int:
    async with connect(url) as connection, connection.channel() as channel:
        await channel.declare_queue(queue, exclusive=True)
        async with channel.consume(queue, no_ack=True) as consumer:
            for _ in range(20):
                await channel.publish(Message(queue.encode()), queue)
                assert (await anext(consumer)).body == queue.encode()
    return 20


def test_many_clients_come_and_go() -> None:
    """Descriptors are used again, for transports and for what is asyncio's."""

    async def main(url: str) -> int:
        count = 0
        for turn in range(3):
            count += sum(await asyncio.gather(*[talk(url, f"q{turn}.{n}") for n in range(30)]))
        return count

    with LocalBroker() as broker:
        assert asyncio.run(main(broker.url)) == 1800


class Failing(Transport):
    """A transport with a bug."""

    def read(self) -> None:
        raise ValueError("on purpose")


class Counting(Transport):
    """A transport that reads."""

    octets = 0

    def read(self) -> None:
        self.octets += len(self.sock.recv(100))


def test_a_transport_that_fails_leaves_the_others_alone(
    selector: HotSelector, caplog: pytest.LogCaptureFixture
) -> None:
    pool = BufferPool()
    reactor = Reactor(None, selector.sockets, pool, Counters(), 65536, 4096)
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(2)]
        for here, there in pairs:
            stack.enter_context(here)
            stack.enter_context(there)
            here.send(b"abc")
        Failing(reactor, pairs[0][1], Endpoint(pool))
        reads = Counting(reactor, pairs[1][1], Endpoint(pool))
        assert selector.select(1) == []
        assert reads.octets == 3
        assert "on purpose" in caplog.text
        reads.pause_reading()
        pairs[1][0].send(b"more")
        assert selector.select(0) == []
        assert reads.octets == 3
