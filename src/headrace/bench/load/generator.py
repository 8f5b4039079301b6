# SPDX-License-Identifier: Apache-2.0
"""The two processes that make a load: one for all publishers, one for all consumers.

They are processes of their own so that publishing, consuming and the broker never wait for each
other's interpreter. Both count on a board in shared memory, which the process that started them
reads to know rates and progress, and both hand their final figures over through a pipe.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from array import array
from collections.abc import MutableSequence
from dataclasses import dataclass, field
from enum import IntEnum
from multiprocessing.connection import Connection as Pipe
from typing import TYPE_CHECKING

from headrace.bench.load.link import BenchError, Link, open_link, raise_close
from headrace.bench.load.link_0_10 import Link010, open_link_0_10, raise_failure
from headrace.bench.load.load import Load, make_publish_buffer, queue_name
from headrace.bench.load.meter import BrokenFrames, Histogram, Receiver, Sender
from headrace.bench.load.meter_0_10 import Receiver010, Sender010
from headrace.protocol.codec_0_10 import ExecutionSync, MessageFlow, MessageSubscribe
from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    decode_method,
)
from headrace.spec.tables import Version
from headrace.wire.frame import HEARTBEAT

if TYPE_CHECKING:
    from headrace.client.url import Settings

READ_SIZE = 262144  # Bytes.
SEND_SIZE = 65536  # Bytes.
TICK_S = 0.1
UNLIMITED = 0xFFFFFFFF  # Credit.
CONFIRM_TIMEOUT_S = 60.0
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Board = MutableSequence[int]


class BoardField(IntEnum):
    """The indexes of the shared board's fields."""

    STOP = 0  # Publishers stop.
    END = 1  # Consumers end.
    MEASURING = 2  # Durations are counted.
    SENT = 3
    EXPECTED = 4  # Deliveries that the publishes cause.
    CONFIRMED = 5
    PUBLISHED = 6  # 1 when the broker has received all publishes.
    RECEIVED = 7
    STARTED_NS = 8
    SENT_NS = 9  # When the broker had received the last publish.
    FIRST_NS = 10  # When the first delivery came.
    LAST_NS = 11
    SIZE = 12


@dataclass(slots=True)
class PublishReport:
    """The results of the publishers."""

    nacked: int = 0
    confirms: list[int] = field(default_factory=list)
    confirms_largest: int = 0


@dataclass(slots=True)
class ConsumeReport:
    """The results of the consumers."""

    repeated: int = 0
    out_of_order: int = 0
    skipped: int = 0
    redelivered: int = 0
    unstamped: int = 0
    ways: list[int] = field(default_factory=list)
    ways_largest: int = 0


class Publisher:
    """One publishing connection."""

    def __init__(self, load: Load, settings: Settings, number: int) -> None:
        self.link: Link | Link010
        make: type[Sender] = Sender
        if load.publish_version is Version.V0_10:
            self.link = open_link_0_10(settings)
            make = Sender010
        else:
            self.link = open_link(settings, load.publish_version)
            if load.window:
                self.link.call(ConfirmSelect(), ConfirmSelectOk)
        self.version = load.publish_version
        buffer = make_publish_buffer(load, number, self.link.frame_max)
        self.sender = make(
            number,
            buffer.data,
            buffer.ends,
            buffer.bodies,
            buffer.targets,
            buffer.fans,
            buffer.targets_count,
            load.window,
            self.link.frame_max,
        )
        if isinstance(self.link, Link010) and isinstance(self.sender, Sender010):
            self.sender.first = self.link.session.machine.sent.next_id
        self.view = memoryview(buffer.data)
        self.socket = self.link.socket
        self.socket.setblocking(False)
        self.buffer = bytearray(READ_SIZE if load.publishers < 16 else 2 * self.link.frame_max)
        self.held = 0  # Octets of an incomplete frame at the start of the buffer.

    def push(self) -> bool:
        """Send the stamped publishes; return True if all were sent."""
        sender = self.sender
        try:
            while sender.lo < sender.hi:
                sender.lo += self.socket.send(self.view[sender.lo : sender.hi])
        except NOT_NOW:
            return False
        return True

    def pull(self) -> None:
        """Read what has come: confirms, or a close."""
        try:
            n = self.socket.recv_into(memoryview(self.buffer)[self.held :])
        except NOT_NOW:
            return
        if n == 0:
            raise BenchError("the broker closed a publisher's connection")
        n += self.held
        taken = self.sender.feed(self.buffer, n, time.monotonic_ns())
        self.held = n - taken
        self.buffer[: self.held] = self.buffer[taken:n]
        _look_at(self.sender.methods, self.version)

    def sync(self) -> None:
        """Wait until the broker has taken everything; only where nothing is confirmed."""
        link = self.link
        if isinstance(link, Link010):
            link.session.machine.sent.next_id += self.sender.sent
            link.machine.rest = bytes(self.buffer[: self.held])
            link.session.call(ExecutionSync())
        else:
            link.rest = bytes(self.buffer[: self.held])
            link.call(BasicQos(), BasicQosOk)  # The answer comes after all publishes were taken.


class Publishers:
    """All publishing connections and their loop."""

    def __init__(self, load: Load, settings: Settings, board: Board) -> None:
        self.load = load
        self.board = board
        self.all = [Publisher(load, settings, number) for number in load.publisher_numbers]
        self.by_fd = {publisher.socket.fileno(): publisher for publisher in self.all}
        self.sent = 0
        self.beat_s = min(publisher.link.heartbeat_s for publisher in self.all) / 3
        self.beat_at = time.monotonic() + self.beat_s

    def run(self) -> None:
        """Publish until the stop or the count; wait until the broker has all messages."""
        load, board = self.load, self.board
        started = time.monotonic_ns()
        board[BoardField.STARTED_NS] = started
        while not board[BoardField.STOP]:
            left = load.count - self.sent if load.is_counted else 1 << 62
            if load.rate and left:
                now = time.monotonic_ns()
                due = started + int(self.sent * 1e9 / load.rate)
                if now < due:
                    self.wait_for_turn((due - now) / 1e9)
                    continue
                left = min(left, int((now - started) * load.rate / 1e9) + 1 - self.sent)
            blocked, went = self.turn(left)
            if load.is_counted and self.sent >= load.count and not blocked:
                break
            if not went:
                self.wait(blocked)
            if self.beat_s and time.monotonic() > self.beat_at:
                self.beat()
        self.finish()
        board[BoardField.SENT_NS] = time.monotonic_ns()
        board[BoardField.PUBLISHED] = 1

    def turn(self, left: int) -> tuple[list[Publisher], bool]:
        """Send once for each publisher; return those with full sockets, and if bytes were sent."""
        load, board = self.load, self.board
        measuring = bool(board[BoardField.MEASURING])
        blocked = []
        went = False
        for publisher in self.all:
            sender = publisher.sender
            sender.measuring = measuring
            if not publisher.push():
                blocked.append(publisher)
                continue
            if load.window:
                publisher.pull()
                room = sender.room()
                if room <= (0 if load.rate else load.window // 8):
                    continue
            else:
                room = 1 << 62
            count = sender.fill(time.monotonic_ns(), min(room, left), SEND_SIZE)
            left -= count
            self.sent += count
            went = went or count > 0
            if not publisher.push():
                blocked.append(publisher)
        self.post()
        return blocked, went

    def post(self) -> None:
        """Put the counts on the board."""
        board = self.board
        board[BoardField.SENT] = self.sent
        board[BoardField.EXPECTED] = sum(publisher.sender.expected for publisher in self.all)
        board[BoardField.CONFIRMED] = sum(publisher.sender.confirmed for publisher in self.all)

    def wait_for_turn(self, seconds: float) -> None:
        """Wait for the next publish's time, reading confirms as they come."""
        if not self.load.window:
            time.sleep(seconds)
            return
        ready, _, _ = select.select(list(self.by_fd), [], [], seconds)
        for fd in ready:
            self.by_fd[fd].pull()

    def wait(self, blocked: list[Publisher]) -> None:
        """Wait until a socket takes or has something."""
        poll = select.poll()
        for publisher in self.all:
            poll.register(publisher.socket, select.POLLIN)
        for publisher in blocked:
            poll.modify(publisher.socket, select.POLLIN | select.POLLOUT)
        for fd, events in poll.poll(TICK_S * 1000):
            if events & ~select.POLLOUT:
                self.by_fd[fd].pull()

    def finish(self) -> None:
        """Send the stamped publishes, and wait until the broker has read them."""
        for publisher in self.all:
            publisher.socket.settimeout(CONFIRM_TIMEOUT_S)
            while publisher.sender.lo < publisher.sender.hi:
                publisher.push()
        deadline = time.monotonic() + CONFIRM_TIMEOUT_S
        for publisher in self.all:
            if self.load.window:
                while publisher.sender.confirmed < publisher.sender.sent:
                    if time.monotonic() > deadline:
                        raise BenchError("confirms did not come within a minute")
                    with contextlib.suppress(TimeoutError):
                        publisher.pull()
                    self.post()
            else:
                publisher.sync()
        self.post()

    def beat(self) -> None:
        """Send a heartbeat wherever nothing is half sent."""
        self.beat_at = time.monotonic() + self.beat_s
        for publisher in self.all:
            if publisher.sender.lo == publisher.sender.hi:
                with contextlib.suppress(*NOT_NOW):
                    publisher.socket.send(HEARTBEAT)

    def figures(self) -> PublishReport:
        """The figures that are not on the board."""
        confirms = Histogram()
        for publisher in self.all:
            confirms.merge(publisher.sender.latency.as_list(), publisher.sender.latency.largest)
        return PublishReport(
            nacked=sum(publisher.sender.nacked for publisher in self.all),
            confirms=confirms.as_list(),
            confirms_largest=confirms.largest,
        )


class Consumers:
    """All consuming connections and their loop."""

    def __init__(self, load: Load, settings: Settings, board: Board) -> None:
        self.load = load
        self.board = board
        self.ways = Histogram()
        self.publishers = load.first_publisher + load.publishers
        self.waited = array("Q", bytes(8 * load.queues * self.publishers))
        self.links: list[Link | Link010] = []
        self.receivers: list[Receiver] = []
        self.tails: list[bytes | bytearray] = []  # Incomplete frames.
        self.measuring = False
        self.received = 0
        self.last_ns = 0
        for number in range(load.consumers):
            self.links.append(self.open(settings, number))
        self.beat_s = min(link.heartbeat_s for link in self.links) / 3
        self.beat_at_ns = time.monotonic_ns() + int(self.beat_s * 1e9)
        self.buffer = bytearray(READ_SIZE + max(link.frame_max for link in self.links))
        self.view = memoryview(self.buffer)

    def open(self, settings: Settings, number: int) -> Link | Link010:
        """One connection that consumes from its share of the queues."""
        load = self.load
        if load.consume_version is Version.V0_10:
            return self.open_0_10(settings, number)
        link = open_link(settings, load.consume_version)
        if load.prefetch:
            link.call(BasicQos(prefetch_count=load.prefetch), BasicQosOk)
        receiver = Receiver(
            self.waited,
            self.publishers,
            self.ways,
            load.ack_every,
            load.exchange != "topic",  # There a queue gets only some numbers.
            link.frame_max,
        )
        step = min(load.consumers, load.queues)
        for queue in range(number % load.queues, load.queues, step):
            consume = BasicConsume(
                queue=queue_name(queue), consumer_tag=f"c{queue}", no_ack=load.ack_every == 0
            )
            link.send(consume)
        if not load.keep and not load.backlog:  # Else deliveries may come before the answer.
            for _ in range(number % load.queues, load.queues, step):
                link.expect(BasicConsumeOk)
        self.receivers.append(receiver)
        self.tails.append(link.rest)
        return link

    def open_0_10(self, settings: Settings, number: int) -> Link010:
        """The same with subscriptions of a 0-10 session."""
        load = self.load
        link = open_link_0_10(settings)
        queues = range(number % load.queues, load.queues, min(load.consumers, load.queues))
        for queue in queues:
            link.session.call(
                MessageSubscribe(
                    queue=queue_name(queue),
                    destination=f"c{queue}",
                    accept_mode=0 if load.ack_every else 1,
                    acquire_mode=0,
                )
            )
        receiver = Receiver010(
            self.waited,
            self.publishers,
            self.ways,
            load.ack_every,
            load.exchange != "topic",
            link.frame_max,
        )
        receiver.next_id = link.session.machine.next_in
        for queue in queues:  # Deliveries come from now on, so the answers are not waited for.
            name = f"c{queue}"
            for unit, credit in ((1, UNLIMITED), (0, load.prefetch or UNLIMITED)):
                link.session.send(MessageFlow(destination=name, unit=unit, value=credit), sync=True)
        self.receivers.append(receiver)
        self.tails.append(link.machine.rest)
        return link

    def run(self) -> None:
        """Consume until the end is signalled."""
        sockets = [link.socket for link in self.links]
        for i, tail in enumerate(self.tails):
            self.tails[i] = b""
            if tail:
                self.buffer[: len(tail)] = tail
                self.take(i, len(tail), time.monotonic_ns())
        if len(sockets) == 1 and not isinstance(sockets[0], ssl.SSLSocket):
            self.run_one(sockets[0])
        else:
            self.run_many(sockets)
        for i in range(len(sockets)):
            self.flush(i)

    def run_one(self, only: socket.socket) -> None:
        """The loop for one connection: no call but the reading one."""
        board = self.board
        only.setblocking(True)
        tick = array("l", [0, int(TICK_S * 1e6)]).tobytes()
        only.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        while not board[BoardField.END]:
            try:
                self.read(0, only)
            except BlockingIOError:
                self.flush(0)
            self.post()

    def run_many(self, sockets: list[socket.socket]) -> None:
        """The loop for many connections."""
        board = self.board
        poll = select.epoll()
        numbers = {}
        for i, sock in enumerate(sockets):
            sock.setblocking(False)
            numbers[sock.fileno()] = i
            poll.register(sock, select.EPOLLIN)
        while not board[BoardField.END]:
            events = poll.poll(TICK_S)
            for fd, _ in events:
                i = numbers[fd]
                sock = sockets[i]
                try:
                    self.read(i, sock)
                    while isinstance(sock, ssl.SSLSocket) and sock.pending():
                        self.read(i, sock)
                except NOT_NOW:
                    pass
            if not events:
                for i in range(len(sockets)):
                    self.flush(i)
            self.post()

    def read(self, i: int, sock: socket.socket) -> None:
        """Read once, behind the incomplete frame of the last reading."""
        tail = self.tails[i]
        if tail:
            n = sock.recv_into(self.view[len(tail) :], READ_SIZE)
            now = time.monotonic_ns()
            self.buffer[: len(tail)] = tail
        else:
            n = sock.recv_into(self.buffer, READ_SIZE)
            now = time.monotonic_ns()
        if n == 0:
            raise BenchError("the broker closed a consumer's connection")
        self.take(i, len(tail) + n, now)

    def take(self, i: int, n: int, now: int) -> None:
        """Parse the first ``n`` bytes of the buffer."""
        receiver = self.receivers[i]
        receiver.measuring = self.measuring
        before = receiver.received
        taken = receiver.feed(self.buffer, n, now)
        self.tails[i] = self.buffer[taken:n] if taken < n else b""
        if receiver.received != before:
            self.received += receiver.received - before
            self.last_ns = now
        if receiver.acks_len:
            self.send_acks(i)
        if receiver.methods:
            _look_at(receiver.methods, self.load.consume_version)

    def post(self) -> None:
        """Write the counts to the board, read its flags, and send heartbeats that are due."""
        board = self.board
        self.measuring = bool(board[BoardField.MEASURING])
        if board[BoardField.RECEIVED] != self.received:
            if not board[BoardField.FIRST_NS]:
                board[BoardField.FIRST_NS] = self.last_ns
            board[BoardField.LAST_NS] = self.last_ns
            board[BoardField.RECEIVED] = self.received
        if self.beat_s and (now := time.monotonic_ns()) > self.beat_at_ns:
            self.beat_at_ns = now + int(self.beat_s * 1e9)
            for link in self.links:
                with contextlib.suppress(*NOT_NOW):
                    link.socket.send(HEARTBEAT)

    def send_acks(self, i: int) -> None:
        """Send the acks that the last look left."""
        receiver, sock = self.receivers[i], self.links[i].socket
        acks = memoryview(receiver.acks)[: receiver.acks_len]
        at = 0
        while at < len(acks):
            try:
                at += sock.send(acks[at:])
            except NOT_NOW:
                select.select([], [sock], [], TICK_S)

    def flush(self, i: int) -> None:
        """Acknowledge the remaining deliveries, when no more arrive."""
        self.receivers[i].flush()
        if self.receivers[i].acks_len:
            self.send_acks(i)

    def figures(self) -> ConsumeReport:
        """The figures that are not on the board."""
        return ConsumeReport(
            repeated=sum(receiver.repeated for receiver in self.receivers),
            out_of_order=sum(receiver.out_of_order for receiver in self.receivers),
            skipped=sum(receiver.skipped() for receiver in self.receivers),
            redelivered=sum(receiver.redelivered for receiver in self.receivers),
            unstamped=sum(receiver.unstamped for receiver in self.receivers),
            ways=self.ways.as_list(),
            ways_largest=self.ways.largest,
        )


def _look_at(methods: list[bytes], version: Version) -> None:
    """Raise when one of these is a close."""
    try:
        for payload in methods:
            if version is Version.V0_10:
                raise_failure(payload)
            else:
                raise_close(decode_method(version, payload))
    finally:
        methods.clear()


def publish(load: Load, settings: Settings, board: Board, pipe: Pipe) -> None:
    """The publishers' process."""
    _work(Publishers, load, settings, board, pipe)


def consume(load: Load, settings: Settings, board: Board, pipe: Pipe) -> None:
    """The consumers' process."""
    _work(Consumers, load, settings, board, pipe)


def _work(
    kind: type[Publishers | Consumers],
    load: Load,
    settings: Settings,
    board: Board,
    pipe: Pipe,
) -> None:
    try:
        workers = kind(load, settings, board)
        pipe.send("ready")
        if pipe.recv() != "go":
            return
        workers.run()
        pipe.send(workers.figures())
        pipe.recv()  # Stay connected until the other side has finished too.
    except (BenchError, BrokenFrames, OSError) as error:
        pipe.send(BenchError(str(error)))
    except (EOFError, KeyboardInterrupt):
        pass
