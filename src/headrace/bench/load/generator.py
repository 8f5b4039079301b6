# SPDX-License-Identifier: Apache-2.0
"""The load generator's two processes, one with all publishers and one with all consumers.

In separate processes, publishing, consuming and the broker do not wait for each other's
interpreter lock. Both processes write their counts to a board in shared memory. The process that
started them reads rates and progress there. Each sends its final report through a pipe.
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

from headrace.bench.load.link import BenchError, BenchLink, open_link, raise_close
from headrace.bench.load.link_0_10 import BenchLink010, open_link_0_10, raise_failure
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
UNLIMITED = 0xFFFFFFFF  # The value of message.flow that removes a limit of credit.
CONFIRM_TIMEOUT_S = 60.0
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

Board = MutableSequence[int]


class BoardField(IntEnum):
    """The indexes of the shared board's fields; times are monotonic nanoseconds."""

    STOP = 0  # 1 stops the publishers.
    END = 1  # 1 stops the consumers.
    MEASURING = 2  # 1 while durations are counted.
    SENT = 3
    EXPECTED = 4  # The number of deliveries of all publishes.
    CONFIRMED = 5
    PUBLISHED = 6  # 1 when the broker has received all publishes.
    RECEIVED = 7
    STARTED_NS = 8
    SENT_NS = 9  # The time when the broker had received all publishes.
    FIRST_NS = 10  # The time of the first delivery.
    LAST_NS = 11  # The time of the last delivery.
    SIZE = 12


@dataclass(slots=True)
class PublishReport:
    """Sums over the publishers of one run."""

    nacked: int = 0
    confirm_times: list[int] = field(default_factory=list)  # Counts of a `Histogram`.
    confirm_time_max: int = 0  # Nanoseconds.


@dataclass(slots=True)
class ConsumeReport:
    """Sums over the consumers of one run, and the faults that they found."""

    repeated: int = 0
    out_of_order: int = 0
    skipped: int = 0
    redelivered: int = 0
    unstamped: int = 0
    delivery_times: list[int] = field(default_factory=list)  # Counts of a `Histogram`.
    delivery_time_max: int = 0  # Nanoseconds.


def make_sender(sender_class: type[Sender], load: Load, number: int, frame_max: int) -> Sender:
    """Return a sender with the publishes of publisher ``number`` of a load in its buffer."""
    buffer = make_publish_buffer(load, number, frame_max)
    return sender_class(
        number,
        buffer.data,
        buffer.ends,
        buffer.bodies,
        buffer.targets,
        buffer.fans,
        buffer.targets_count,
        load.window,
        frame_max,
    )


class LoadPublisher:
    """A publishing connection with its sender."""

    def __init__(self, load: Load, settings: Settings, number: int) -> None:
        self.link: BenchLink | BenchLink010
        sender_class: type[Sender] = Sender
        if load.publish_version is Version.V0_10:
            self.link = open_link_0_10(settings)
            sender_class = Sender010
        else:
            self.link = open_link(settings, load.publish_version)
            if load.window:
                self.link.call(ConfirmSelect(), ConfirmSelectOk)
        self.version = load.publish_version
        self.sender = make_sender(sender_class, load, number, self.link.frame_max)
        if isinstance(self.link, BenchLink010) and isinstance(self.sender, Sender010):
            self.sender.first_id = self.link.session.machine.sent.next_id
        self.view = memoryview(self.sender.buffer)
        self.socket = self.link.socket
        self.socket.setblocking(False)
        self.buffer = bytearray(READ_SIZE if load.publishers < 16 else 2 * self.link.frame_max)
        self.partial_size = 0  # Bytes of an incomplete frame at the start of the buffer.

    def push(self) -> bool:
        """Send stamped publishes until the socket is full; return True if all were sent."""
        sender = self.sender
        try:
            while sender.send_start < sender.send_end:
                data = self.view[sender.send_start : sender.send_end]
                sender.send_start += self.socket.send(data)
        except WOULD_BLOCK:
            return False
        return True

    def pull(self) -> None:
        """Read confirms from the socket, if it has input.

        Raises:
            BenchError: the broker closed the channel or the connection.
        """
        try:
            size = self.socket.recv_into(memoryview(self.buffer)[self.partial_size :])
        except WOULD_BLOCK:
            return
        if size == 0:
            raise BenchError("the broker closed a publisher's connection")
        size += self.partial_size
        frames_size = self.sender.feed(self.buffer, size, time.monotonic_ns())
        self.partial_size = size - frames_size
        self.buffer[: self.partial_size] = self.buffer[frames_size:size]
        _raise_on_close(self.sender.methods, self.version)

    def sync(self) -> None:
        """Wait until the broker has received all publishes, where they are not confirmed."""
        link = self.link
        if isinstance(link, BenchLink010):
            link.session.machine.sent.next_id += self.sender.sent
            link.machine.rest = bytes(self.buffer[: self.partial_size])
            link.session.call(ExecutionSync())
        else:
            link.rest = bytes(self.buffer[: self.partial_size])
            link.call(
                BasicQos(), BasicQosOk
            )  # The broker answers after it has received all publishes.


class Publishers:
    """All publishing connections and the loop that serves them."""

    def __init__(self, load: Load, settings: Settings, board: Board) -> None:
        self.load = load
        self.board = board
        self.publishers = [
            LoadPublisher(load, settings, number) for number in load.publisher_numbers
        ]
        self.by_fd = {publisher.socket.fileno(): publisher for publisher in self.publishers}
        self.sent = 0
        self.beat_s = min(publisher.link.heartbeat_s for publisher in self.publishers) / 3
        self.beat_at = time.monotonic() + self.beat_s

    def run(self) -> None:
        """Publish until the stop or the count; wait until the broker has all messages."""
        load, board = self.load, self.board
        started = time.monotonic_ns()
        board[BoardField.STARTED_NS] = started
        while not board[BoardField.STOP]:
            count_max = load.count - self.sent if load.is_counted else 1 << 62
            if load.rate and count_max:
                now = time.monotonic_ns()
                send_time = started + int(self.sent * 1e9 / load.rate)
                if now < send_time:
                    self.sleep((send_time - now) / 1e9)
                    continue
                rate_count = int((now - started) * load.rate / 1e9) + 1 - self.sent
                count_max = min(count_max, rate_count)
            blocked, has_sent = self.send_once(count_max)
            if load.is_counted and self.sent >= load.count and not blocked:
                break
            if not has_sent:
                self.wait(blocked)
            if self.beat_s and time.monotonic() > self.beat_at:
                self.beat()
        self.finish()
        board[BoardField.SENT_NS] = time.monotonic_ns()
        board[BoardField.PUBLISHED] = 1

    def send_once(self, count_max: int) -> tuple[list[LoadPublisher], bool]:
        """Stamp and send a buffer for each publisher, `count_max` messages at most in all.

        Returns:
            The publishers whose sockets are full, and True if any message was stamped.
        """
        load, board = self.load, self.board
        measuring = bool(board[BoardField.MEASURING])
        blocked = []
        has_sent = False
        for publisher in self.publishers:
            sender = publisher.sender
            sender.measuring = measuring
            if not publisher.push():
                blocked.append(publisher)
                continue
            if load.window:
                publisher.pull()
                window = sender.free_window()
                if window <= (0 if load.rate else load.window // 8):
                    continue
            else:
                window = 1 << 62
            count = sender.fill(time.monotonic_ns(), min(window, count_max), SEND_SIZE)
            count_max -= count
            self.sent += count
            has_sent = has_sent or count > 0
            if not publisher.push():
                blocked.append(publisher)
        self.post()
        return blocked, has_sent

    def post(self) -> None:
        """Write the counts to the board."""
        board = self.board
        board[BoardField.SENT] = self.sent
        board[BoardField.EXPECTED] = sum(publisher.sender.expected for publisher in self.publishers)
        board[BoardField.CONFIRMED] = sum(
            publisher.sender.confirmed for publisher in self.publishers
        )

    def sleep(self, seconds: float) -> None:
        """Wait until the next publish is due; read a first batch of confirms meanwhile."""
        if not self.load.window:
            time.sleep(seconds)
            return
        ready, _, _ = select.select(list(self.by_fd), [], [], seconds)
        for fd in ready:
            self.by_fd[fd].pull()

    def wait(self, blocked: list[LoadPublisher]) -> None:
        """Wait until a blocked socket is writable or any socket has confirms; read these."""
        poll = select.poll()
        for publisher in self.publishers:
            poll.register(publisher.socket, select.POLLIN)
        for publisher in blocked:
            poll.modify(publisher.socket, select.POLLIN | select.POLLOUT)
        for fd, events in poll.poll(TICK_S * 1000):
            if events & ~select.POLLOUT:
                self.by_fd[fd].pull()

    def finish(self) -> None:
        """Send the stamped publishes, and wait until the broker has read them."""
        for publisher in self.publishers:
            publisher.socket.settimeout(CONFIRM_TIMEOUT_S)
            while publisher.sender.send_start < publisher.sender.send_end:
                publisher.push()
        deadline = time.monotonic() + CONFIRM_TIMEOUT_S
        for publisher in self.publishers:
            if self.load.window:
                while publisher.sender.confirmed < publisher.sender.sent:
                    if time.monotonic() > deadline:
                        raise BenchError(f"no confirms within {CONFIRM_TIMEOUT_S:g} s")
                    with contextlib.suppress(TimeoutError):
                        publisher.pull()
                    self.post()
            else:
                publisher.sync()
        self.post()

    def beat(self) -> None:
        """Send a heartbeat on each connection without a partly sent publish."""
        self.beat_at = time.monotonic() + self.beat_s
        for publisher in self.publishers:
            if publisher.sender.send_start == publisher.sender.send_end:
                with contextlib.suppress(*WOULD_BLOCK):
                    publisher.socket.send(HEARTBEAT)

    def make_report(self) -> PublishReport:
        """Return the publishers' results that are not on the board."""
        confirms = Histogram()
        for publisher in self.publishers:
            confirms.merge(publisher.sender.latency.as_list(), publisher.sender.latency.largest)
        return PublishReport(
            nacked=sum(publisher.sender.nacked for publisher in self.publishers),
            confirm_times=confirms.as_list(),
            confirm_time_max=confirms.largest,
        )


class Consumers:
    """All consuming connections and the loop that serves them."""

    def __init__(self, load: Load, settings: Settings, board: Board) -> None:
        self.load = load
        self.board = board
        self.delivery_times = Histogram()
        self.publisher_count = load.first_publisher + load.publishers
        self.next_seqs = array("Q", bytes(8 * load.queues * self.publisher_count))
        self.links: list[BenchLink | BenchLink010] = []
        self.receivers: list[Receiver] = []
        self.tails: list[bytes | bytearray] = []  # The incomplete frame of each connection.
        self.measuring = False
        self.received = 0
        self.last_ns = 0
        for number in range(load.consumers):
            self.links.append(self.open(settings, number))
        self.beat_s = min(link.heartbeat_s for link in self.links) / 3
        self.beat_at_ns = time.monotonic_ns() + int(self.beat_s * 1e9)
        self.buffer = bytearray(READ_SIZE + max(link.frame_max for link in self.links))
        self.view = memoryview(self.buffer)

    def open(self, settings: Settings, number: int) -> BenchLink | BenchLink010:
        """Open a connection that consumes from its share of the queues."""
        load = self.load
        if load.consume_version is Version.V0_10:
            return self.open_0_10(settings, number)
        link = open_link(settings, load.consume_version)
        if load.prefetch:
            link.call(BasicQos(prefetch_count=load.prefetch), BasicQosOk)
        receiver = Receiver(
            self.next_seqs,
            self.publisher_count,
            self.delivery_times,
            load.ack_every,
            load.exchange != "topic",  # A queue of a topic exchange gets only some numbers.
            link.frame_max,
        )
        step = min(load.consumers, load.queues)
        for queue in range(number % load.queues, load.queues, step):
            consume = BasicConsume(
                queue=queue_name(queue), consumer_tag=f"c{queue}", no_ack=load.ack_every == 0
            )
            link.send(consume)
        if not load.keep and not load.backlog:  # Otherwise deliveries may precede consume-ok.
            for _ in range(number % load.queues, load.queues, step):
                link.expect(BasicConsumeOk)
        self.receivers.append(receiver)
        self.tails.append(link.rest)
        return link

    def open_0_10(self, settings: Settings, number: int) -> BenchLink010:
        """Open a connection of 0-10 that subscribes to its share of the queues."""
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
            self.next_seqs,
            self.publisher_count,
            self.delivery_times,
            load.ack_every,
            load.exchange != "topic",
            link.frame_max,
        )
        receiver.next_id = link.session.machine.next_in
        for queue in queues:  # Without waiting for completions, as deliveries may precede them.
            name = f"c{queue}"
            for unit, credit in ((1, UNLIMITED), (0, load.prefetch or UNLIMITED)):
                link.session.send(MessageFlow(destination=name, unit=unit, value=credit), sync=True)
        self.receivers.append(receiver)
        self.tails.append(link.machine.rest)
        return link

    def run(self) -> None:
        """Consume until the board's field `END` is set; then ack the remaining deliveries."""
        sockets = [link.socket for link in self.links]
        for i, tail in enumerate(self.tails):
            self.tails[i] = b""
            if tail:
                self.buffer[: len(tail)] = tail
                self.process(i, len(tail), time.monotonic_ns())
        if len(sockets) == 1 and not isinstance(sockets[0], ssl.SSLSocket):
            self.run_one(sockets[0])
        else:
            self.run_many(sockets)
        for i in range(len(sockets)):
            self.flush(i)

    def run_one(self, sock: socket.socket) -> None:
        """Serve a single connection, whose only system call for each read is the read itself."""
        board = self.board
        sock.setblocking(True)
        tick = array("l", [0, int(TICK_S * 1e6)]).tobytes()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, tick)
        while not board[BoardField.END]:
            try:
                self.read(0, sock)
            except BlockingIOError:
                self.flush(0)
            self.post()

    def run_many(self, sockets: list[socket.socket]) -> None:
        """Serve several connections."""
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
                except WOULD_BLOCK:
                    pass
            if not events:
                for i in range(len(sockets)):
                    self.flush(i)
            self.post()

    def read(self, i: int, sock: socket.socket) -> None:
        """Read once, after the incomplete frame of the last read, and process the frames."""
        tail = self.tails[i]
        if tail:
            size = sock.recv_into(self.view[len(tail) :], READ_SIZE)
            now = time.monotonic_ns()
            self.buffer[: len(tail)] = tail
        else:
            size = sock.recv_into(self.buffer, READ_SIZE)
            now = time.monotonic_ns()
        if size == 0:
            raise BenchError("the broker closed a consumer's connection")
        self.process(i, len(tail) + size, now)

    def process(self, i: int, size: int, now: int) -> None:
        """Process the first `size` bytes of the buffer, which connection `i` received."""
        receiver = self.receivers[i]
        receiver.measuring = self.measuring
        before = receiver.received
        frames_size = receiver.feed(self.buffer, size, now)
        self.tails[i] = self.buffer[frames_size:size] if frames_size < size else b""
        if receiver.received != before:
            self.received += receiver.received - before
            self.last_ns = now
        if receiver.acks_len:
            self.send_acks(i)
        if receiver.methods:
            _raise_on_close(receiver.methods, self.load.consume_version)

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
                with contextlib.suppress(*WOULD_BLOCK):
                    link.socket.send(HEARTBEAT)

    def send_acks(self, i: int) -> None:
        """Send the acks that the receiver has written."""
        receiver, sock = self.receivers[i], self.links[i].socket
        acks = memoryview(receiver.acks)[: receiver.acks_len]
        sent = 0
        while sent < len(acks):
            try:
                sent += sock.send(acks[sent:])
            except WOULD_BLOCK:
                select.select([], [sock], [], TICK_S)

    def flush(self, i: int) -> None:
        """Ack the unacked deliveries of a connection."""
        self.receivers[i].flush()
        if self.receivers[i].acks_len:
            self.send_acks(i)

    def make_report(self) -> ConsumeReport:
        """Return the consumers' results that are not on the board."""
        return ConsumeReport(
            repeated=sum(receiver.repeated for receiver in self.receivers),
            out_of_order=sum(receiver.out_of_order for receiver in self.receivers),
            skipped=sum(receiver.count_missing() for receiver in self.receivers),
            redelivered=sum(receiver.redelivered for receiver in self.receivers),
            unstamped=sum(receiver.unstamped for receiver in self.receivers),
            delivery_times=self.delivery_times.as_list(),
            delivery_time_max=self.delivery_times.largest,
        )


def _raise_on_close(methods: list[bytes], version: Version) -> None:
    """Raise BenchError if one of the method payloads is a close; remove all of them."""
    try:
        for payload in methods:
            if version is Version.V0_10:
                raise_failure(payload)
            else:
                raise_close(decode_method(version, payload))
    finally:
        methods.clear()


def publish(load: Load, settings: Settings, board: Board, pipe: Pipe) -> None:
    """Run the publishers; the target of their process."""
    _work(Publishers, load, settings, board, pipe)


def consume(load: Load, settings: Settings, board: Board, pipe: Pipe) -> None:
    """Run the consumers; the target of their process."""
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
        pipe.send(workers.make_report())
        pipe.recv()  # Stay connected until the other process has finished, too.
    except (BenchError, BrokenFrames, OSError) as error:
        pipe.send(BenchError(str(error)))
    except (EOFError, KeyboardInterrupt):
        pass
