# SPDX-License-Identifier: Apache-2.0
"""``headrace declare``, ``delete`` and ``purge``: queues, streams, exchanges and bindings."""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click

from headrace.cli.broker_url import (
    BY_CHANNEL,
    EXCHANGE,
    OFFSET_MAX,
    QUEUE,
    STREAM,
    broker_option,
    open_channel,
)
from headrace.cli.commands import Group
from headrace.cli.output import format_option, print_facts
from headrace.server.config.settings import parse_size

Function = TypeVar("Function", bound=Callable[..., object])


if TYPE_CHECKING:
    from headrace.client.blocking import Channel
    from headrace.wire.table import Value

    _Type = click.ParamType[object]
else:
    _Type = click.ParamType  # Before click 8.4 it has no parameter.


class Size(_Type):
    """A number of bytes, such as 1048576 or 1MiB."""

    name = "bytes"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        size = value if isinstance(value, int) else parse_size(str(value))
        if size is None or not 0 <= size <= OFFSET_MAX:
            self.fail(f"{value!r} is not a number of bytes, such as 1048576 or 1MiB", param, ctx)
        return size


COUNT = click.IntRange(0)
# Options for arguments of queues, streams and exchanges: argument, type, help.
Table: TypeAlias = "dict[str, tuple[str, click.ParamType[object] | None, str]]"
SHARED_OPTIONS: Table = {
    "max_length": (
        "x-max-length",
        COUNT,
        "Maximum number of ready messages; at the limit --overflow applies.",
    ),
    "max_length_bytes": (
        "x-max-length-bytes",
        Size(),
        "Maximum bytes of the bodies of ready messages, such as 1GiB.",
    ),
}
QUEUE_OPTIONS: Table = SHARED_OPTIONS | {
    "overflow": (
        "x-overflow",
        click.Choice(["drop-head", "reject-publish", "reject-publish-dlx"]),
        "Behaviour at the limit. [drop-head]",
    ),
    "message_ttl_ms": (
        "x-message-ttl",
        COUNT,
        "Time to live of a message in the queue, in milliseconds.",
    ),
    "expires_ms": (
        "x-expires",
        COUNT,
        "Time without use after which the queue is deleted, in milliseconds.",
    ),
    "dead_letter_exchange": (
        "x-dead-letter-exchange",
        None,
        "Exchange for rejected, expired and dropped messages.",
    ),
    "dead_letter_routing_key": (
        "x-dead-letter-routing-key",
        None,
        "Routing key of dead letters. [that of the message]",
    ),
    "delivery_limit": (
        "x-delivery-limit",
        COUNT,
        "Maximum number of returns of a message to a quorum queue.",
    ),
    "max_priority": (
        "x-max-priority",
        click.IntRange(1, 255),
        "Highest priority of a classic queue, up to 255.",
    ),
}
STREAM_OPTIONS: Table = {
    "max_length_bytes": (
        "x-max-length-bytes",
        Size(),
        "Maximum size of the stream, in bytes, such as 1GiB.",
    ),
    "max_age": ("x-max-age", None, "Maximum age of records: 30s, 10m, 12h, 7D, 1M, 1Y."),
    "local_max_length_bytes": (
        "x-local-max-length-bytes",
        Size(),
        "Bytes that stay on the broker's machine; older segments move to the stream_store.",
    ),
    "local_max_age": (
        "x-local-max-age",
        None,
        "Age up to which segments stay on the broker's machine, as for --max-age.",
    ),
}
EXCHANGE_OPTIONS: Table = {
    "alternate_exchange": (
        "alternate-exchange",
        None,
        "Exchange for unroutable messages.",
    ),
}


ArgumentPair: TypeAlias = "tuple[str, Value]"  # An argument and its value.


def timestamp(text: str) -> Value:
    """Return a time of ISO 8601, UTC by default, or of Unix in seconds.

    Raises:
        ValueError: the text is in neither form, or beyond 64 bits.
    """
    from headrace.wire.table import decode_timestamp, encode_timestamp

    if text.isdecimal():
        return decode_timestamp(encode_timestamp(int(text)))
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def decode_base64(text: str) -> Value:
    """Return bytes that are written in base64.

    Raises:
        ValueError: the text is not base64.
    """
    return base64.b64decode(text, validate=True)


# Types of arguments that JSON does not have.
TYPES: dict[str, Callable[[str], Value]] = {
    "timestamp": timestamp,
    "decimal": Decimal,
    "bytes": decode_base64,
}


class Argument(_Type):
    """NAME=VALUE or NAME:TYPE=VALUE; a JSON value has its type, any other is text."""

    name = "argument"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> ArgumentPair:
        name, separator, text = str(value).partition("=")
        if not separator or not name:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        from headrace.wire.table import encode_entry

        untyped, _, kind = name.rpartition(":")
        if untyped and kind in TYPES:
            try:
                typed = TYPES[kind](text)
                encode_entry(untyped, typed)
            except (ValueError, ArithmeticError):
                self.fail(f"{text!r} is not a {kind}", param, ctx)
            return untyped, typed
        from headrace.exact_json import UnfitValue, read_json

        try:
            return name, read_json(text)
        except UnfitValue as error:
            self.fail(f"{name}: {error}", param, ctx)
        except ValueError:
            return name, text


arg_option = click.option(
    "--arg",
    "argument_pairs",
    multiple=True,
    type=Argument(),
    metavar="NAME=VALUE",
    help='Any other argument. 5, 0.5, true, and JSON have their type, "5" in quotes is a '
    "string. NAME:timestamp=, NAME:decimal= and NAME:bytes= (base64) set the type. May "
    "be repeated.",
)
passive_option = click.option("--passive", is_flag=True, help="Only check that it exists.")
durable_option = click.option(
    "--durable/--transient", default=True, help="Whether it survives a restart. [durable]"
)
auto_delete_option = click.option(
    "--auto-delete", is_flag=True, help="Delete it with its last consumer or binding."
)


def argument_options(table: Table) -> Callable[[Function], Function]:
    """Add the options for arguments."""

    def decorate(function: Function) -> Function:
        for name, (_, kind, words) in reversed(table.items()):
            flag = f"--{name.replace('_', '-')}"
            metavar = "N" if isinstance(kind, click.IntRange) else None
            function = click.option(flag, name, type=kind, metavar=metavar, help=words)(function)
        return function

    return decorate


def merge_arguments(
    table: Table,
    options: dict[str, Value],
    argument_pairs: tuple[ArgumentPair, ...],
    **fixed: Value,
) -> dict[str, Value]:
    """Return the arguments that options, ``--arg`` and a command set.

    Raises:
        click.UsageError: two of them set the same argument.
    """
    from_options = [(table[name][0], value) for name, value in options.items() if value is not None]
    arguments: dict[str, Value] = {}
    for name, value in (*fixed.items(), *from_options, *argument_pairs):
        if name in arguments:
            raise click.UsageError(f"the argument {name} is given twice")
        arguments[name] = value
    return arguments


@click.group(cls=Group)
def declare() -> None:
    """Declare a queue, a stream, an exchange or a binding.

    The broker refuses (406) a declaration that differs from an existing object.
    """


@declare.command("queue")
@broker_option
@click.option(
    "--type",
    "kind",
    type=click.Choice(["classic", "quorum", "stream"]),
    help="[the default of the virtual host, usually classic]",
)
@durable_option
@auto_delete_option
@argument_options(QUEUE_OPTIONS)
@arg_option
@passive_option
@format_option
@click.argument("name", metavar="QUEUE", type=QUEUE)
def declare_queue(
    url: str,
    kind: str | None,
    durable: bool,
    auto_delete: bool,
    argument_pairs: tuple[ArgumentPair, ...],
    passive: bool,
    form: str | None,
    name: str,
    **options: Value,
) -> None:
    """Declare QUEUE; print how many messages and consumers it has."""
    fixed = {} if kind is None else {"x-queue-type": kind}
    arguments = merge_arguments(QUEUE_OPTIONS, options, argument_pairs, **fixed)
    with open_channel(url) as channel:
        state = channel.declare_queue(
            name, durable=durable, auto_delete=auto_delete, passive=passive, arguments=arguments
        )
    facts = {"queue": state.name, "ready": state.message_count, "consumers": state.consumer_count}
    print_facts(facts, form)


@declare.command("stream")
@broker_option
@argument_options(STREAM_OPTIONS)
@arg_option
@passive_option
@click.argument("name", metavar="STREAM", type=STREAM)
def declare_stream(
    url: str, argument_pairs: tuple[ArgumentPair, ...], passive: bool, name: str, **options: Value
) -> None:
    """Declare STREAM, a durable queue that keeps messages after they were read."""
    arguments = merge_arguments(
        STREAM_OPTIONS, options, argument_pairs, **{"x-queue-type": "stream"}
    )
    with open_channel(url) as channel:
        channel.declare_queue(name, passive=passive, arguments=arguments)


@declare.command("exchange")
@broker_option
@click.option("--type", "kind", default="direct", show_default=True, metavar="TYPE",
    help="direct, fanout, topic, headers, or another type of the broker.",
)  # fmt: skip
@durable_option
@auto_delete_option
@click.option("--internal", is_flag=True, help="Accept messages only from other exchanges.")
@argument_options(EXCHANGE_OPTIONS)
@arg_option
@passive_option
@click.argument("name", metavar="EXCHANGE", type=EXCHANGE)
def declare_exchange(
    url: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    argument_pairs: tuple[ArgumentPair, ...],
    passive: bool,
    name: str,
    **options: Value,
) -> None:
    """Declare EXCHANGE."""
    arguments = merge_arguments(EXCHANGE_OPTIONS, options, argument_pairs)
    with open_channel(url) as channel:
        channel.declare_exchange(
            name,
            kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            passive=passive,
            arguments=arguments,
        )


def binding_command(method: Callable[[Channel, bool], Callable[..., None]]) -> Callable[..., None]:
    """Make a command of a channel's method that takes the fields of a binding."""

    @functools.wraps(method)
    def command(
        url: str,
        argument_pairs: tuple[ArgumentPair, ...],
        to_exchange: bool,
        source: str,
        destination: str,
        routing_key: str,
    ) -> None:
        arguments = merge_arguments({}, {}, argument_pairs)
        with open_channel(url) as channel:
            method(channel, to_exchange)(destination, source, routing_key, arguments)

    for decorate in (
        click.argument("routing_key", default=""),
        click.argument("destination", type=QUEUE),
        click.argument("source", type=EXCHANGE),
        click.option("--to-exchange", is_flag=True, help="DESTINATION is an exchange."),
        arg_option,
        broker_option,
    ):
        command = decorate(command)
    return command


@declare.command("binding")
@binding_command
def declare_binding(channel: Channel, to_exchange: bool) -> Callable[..., None]:
    """Bind the queue DESTINATION to the exchange SOURCE with ROUTING_KEY."""
    return channel.bind_exchange if to_exchange else channel.bind_queue


@click.group(cls=Group)
def delete() -> None:
    """Delete a queue, a stream, an exchange or a binding; a missing one is not an error."""


def removal_options(function: Function) -> Function:
    """Add the conditions for deleting a queue or a stream."""
    unused = click.option("--if-unused", is_flag=True, help="Only if it has no consumers.")
    empty = click.option("--if-empty", is_flag=True, help="Only if it has no messages.")
    return unused(empty(function))


@BY_CHANNEL.command(delete, "queue")
@removal_options
@click.argument("name", metavar="QUEUE", type=QUEUE)
def delete_queue(channel: Channel, if_unused: bool, if_empty: bool, name: str) -> None:
    """Delete QUEUE; print how many messages it had."""
    delete_any(channel, if_unused, if_empty, name)


@BY_CHANNEL.command(delete, "stream")
@removal_options
@click.argument("name", metavar="STREAM", type=STREAM)
def delete_stream(channel: Channel, if_unused: bool, if_empty: bool, name: str) -> None:
    """Delete STREAM; print how many records it had."""
    delete_any(channel, if_unused, if_empty, name)


def delete_any(channel: Channel, if_unused: bool, if_empty: bool, name: str) -> None:
    """Delete a queue or a stream; print how many messages it had."""
    count = channel.delete_queue(name, if_unused=if_unused, if_empty=if_empty)
    click.echo(f"{count} messages deleted", err=True)


@BY_CHANNEL.command(delete, "exchange")
@click.option("--if-unused", is_flag=True, help="Only if it has no bindings.")
@click.argument("name", metavar="EXCHANGE", type=EXCHANGE)
def delete_exchange(channel: Channel, if_unused: bool, name: str) -> None:
    """Delete EXCHANGE with its bindings."""
    channel.delete_exchange(name, if_unused=if_unused)


@delete.command("binding")
@binding_command
def delete_binding(channel: Channel, to_exchange: bool) -> Callable[..., None]:
    """Unbind DESTINATION from SOURCE with ROUTING_KEY."""
    return channel.unbind_exchange if to_exchange else channel.unbind_queue


@BY_CHANNEL.command(None, "purge")
@click.argument("name", metavar="QUEUE", type=QUEUE)
def purge(channel: Channel, name: str) -> None:
    """Delete the ready messages of QUEUE; unacked ones stay with their consumers."""
    count = channel.purge_queue(name)
    click.echo(f"{count} messages deleted", err=True)
