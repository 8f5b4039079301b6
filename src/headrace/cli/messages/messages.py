# SPDX-License-Identifier: Apache-2.0
"""``headrace publish``, ``consume`` and ``get``: messages in a shell."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from io import RawIOBase
from types import FrameType
from typing import IO, TYPE_CHECKING

import click

from headrace.cli.broker_url import (
    QUEUE,
    Name,
    broker_option,
    consumer_arguments,
    open_channel,
    parse_position,
    selector_option,
)

if TYPE_CHECKING:
    from headrace.client import Delivery, Message
    from headrace.client.blocking import Delivery as BlockingDelivery

json_option = click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line, with properties."
)
EXPIRATION_S_MAX = 3650 * 86_400  # Ten years.


class Interrupts:
    """Lets SIGINT end the wait for a message, but not its printing and acknowledging."""

    def __init__(self) -> None:
        self._interrupted = False
        self._raises = False

    def on_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT; a second one interrupts anything."""
        if self._raises or self._interrupted:
            raise KeyboardInterrupt
        self._interrupted = True

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGINT within the block; restore the former handler afterwards."""
        before = signal.signal(signal.SIGINT, self.on_interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def raising(self) -> Iterator[None]:
        """Raise KeyboardInterrupt within the block, also for an earlier signal."""
        self._raises = True
        try:
            if self._interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False


@click.command()
@broker_option
@click.option(
    "--exchange",
    "-e",
    type=Name("exchanges", optional=True),
    default="",
    help="Exchange; without it, ROUTING_KEY is the name of a queue.",
)
@click.option("--declare", is_flag=True, help="Create the queue ROUTING_KEY if it is missing.")
@click.option("--lines", is_flag=True, help="Publish each line of standard input as a message.")
@click.option("--header", "-H", "headers", multiple=True, metavar="NAME=VALUE")
@click.option("--content-type")
@click.option("--priority", type=click.IntRange(0, 255))
@click.option(
    "--expiration-s",
    type=click.FloatRange(0, EXPIRATION_S_MAX),
    help="The time to live, in seconds.",
)
@click.option(
    "--transient",
    is_flag=True,
    help="Publish transient messages, which a restart of the broker loses.",
)
@click.argument("routing_key")
@click.argument("bodies", nargs=-1, metavar="[BODY]...")
def publish(
    url: str,
    exchange: str,
    declare: bool,
    lines: bool,
    headers: tuple[str, ...],
    content_type: str | None,
    priority: int | None,
    expiration_s: float | None,
    transient: bool,
    routing_key: str,
    bodies: tuple[str, ...],
) -> None:
    """Publish each BODY, or standard input, and wait until the broker has confirmed all.

    An unroutable message is an error.
    """
    from headrace.client import Message

    if declare and exchange:
        raise click.UsageError("--declare creates a queue, so give no --exchange")
    if bodies and lines:
        raise click.UsageError("--lines reads standard input, so give no BODY")
    table = {}
    for header in headers:
        name, separator, value = header.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--header {header!r} is not NAME=VALUE")
        table[name] = value

    try:
        expiration = None if expiration_s is None else timedelta(seconds=expiration_s)
    except ValueError:
        raise click.UsageError(
            f"--expiration-s {expiration_s} is not a number of seconds"
        ) from None

    def message(body: bytes) -> Message:
        return Message(
            body,
            headers=table,
            persistent=not transient,
            content_type=content_type,
            priority=priority,
            expiration=expiration,
        )

    def contents() -> Iterator[Message]:
        if bodies:
            yield from (message(body.encode("utf-8", "surrogateescape")) for body in bodies)
        elif lines:
            yield from (message(line.rstrip(b"\r\n")) for line in sys.stdin.buffer)
        else:
            yield message(sys.stdin.buffer.read())

    with open_channel(url) as channel:
        if declare:
            channel.declare_queue(routing_key)
        count = channel.publish_many(contents(), routing_key, exchange, mandatory=True)
    click.echo(f"{count} published and confirmed", err=True)


@click.command()
@broker_option
@click.option("--count", "-n", type=click.IntRange(1), help="Stop after this number of messages.")
@click.option(
    "--timeout-s",
    type=click.FloatRange(0),
    help="Stop if no message arrives for this time, in seconds.",
)
@click.option("--prefetch", type=click.IntRange(1, 65535), default=100, show_default=True)
@click.option(
    "--no-ack",
    is_flag=True,
    help="Consume without acknowledgements.",
)
@click.option("--declare", is_flag=True, help="Create the durable queue if it is missing.")
@click.option(
    "--offset",
    metavar="OFFSET",
    help="Start position in a stream: first, last, next, a number, or an ISO time.",
)
@selector_option
@json_option
@click.argument("queue", type=QUEUE)
def consume(
    url: str,
    count: int | None,
    timeout_s: float | None,
    prefetch: int,
    no_ack: bool,
    declare: bool,
    offset: str | None,
    selector: str,
    as_json: bool,
    queue: str,
) -> None:
    """Print the messages of QUEUE, each followed by a newline, and acknowledge them.

    The command ends when the reader of its output ends. Messages that could not be written return
    to QUEUE; messages in the pipe do not.
    """
    arguments = consumer_arguments(selector, parse_position(offset, "--offset") if offset else None)
    seen = 0
    interrupts = Interrupts()
    with (
        open_channel(url) as channel,
        contextlib.suppress(KeyboardInterrupt),
        ignore_closed_output(),
        interrupts.installed(),
    ):
        if declare:
            channel.declare_queue(queue)
        if count is not None:
            prefetch = min(prefetch, count)
        with channel.consume(
            queue, prefetch=prefetch, no_ack=no_ack, arguments=arguments
        ) as consumer:
            while count is None or seen < count:
                try:
                    with interrupts.raising():
                        delivery = consumer.receive(timeout_s)
                except TimeoutError:
                    break
                show(delivery, as_json)
                if not no_ack:
                    delivery.ack()
                seen += 1
    click.echo(f"{seen} consumed", err=True)


@click.command()
@broker_option
@json_option
@click.argument("queue", type=QUEUE)
def get(url: str, as_json: bool, queue: str) -> None:
    """Take one message from QUEUE and print it; fails when the queue is empty."""
    with open_channel(url) as channel:
        delivery = channel.get(queue)
        if delivery is None:
            raise click.ClickException(f"queue '{queue}' is empty")
        show(delivery, as_json)
        delivery.ack()


def show(delivery: Delivery | BlockingDelivery, as_json: bool) -> None:
    """Print a message and flush, before it is acknowledged.

    Raises:
        BrokenPipeError: the reader of standard output has closed it.
    """
    output = sys.stdout.buffer
    output.write(as_json_line(delivery) if as_json else delivery.body)
    output.write(b"\n")
    output.flush()
    if is_unread(sys.stdout):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def is_unread(output: IO[str] | IO[bytes] | RawIOBase) -> bool:
    """Return True if a file is a pipe or socket whose reader has closed it."""
    try:
        number = output.fileno()
    except (OSError, ValueError):
        return False  # Not a file of the system.
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@contextlib.contextmanager
def ignore_closed_output() -> Iterator[None]:
    """End quietly when the reader of standard output closes it; drop buffered output."""
    try:
        yield
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def as_json_line(delivery: Delivery | BlockingDelivery) -> bytes:
    """Return a message as a JSON object; a body that is not UTF-8 is in ``body_base64``."""
    import base64

    about: dict[str, object] = {}
    try:
        about["body"] = delivery.body.decode()
    except UnicodeDecodeError:
        about["body_base64"] = base64.b64encode(delivery.body).decode()
    about |= {
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
        "redelivered": delivery.redelivered,
        "headers": dict(delivery.headers),
    }
    for name in ("content_type", "content_encoding", "priority", "correlation_id", "reply_to"):
        about[name] = getattr(delivery, name)
    for name in ("message_id", "timestamp", "type", "user_id", "app_id"):
        about[name] = getattr(delivery, name)
    if delivery.expiration is not None:
        about["expiration_s"] = delivery.expiration.total_seconds()
    about["persistent"] = delivery.persistent
    kept = {name: value for name, value in about.items() if value is not None}
    return json.dumps(kept, default=str, ensure_ascii=False).encode()
