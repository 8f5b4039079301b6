# SPDX-License-Identifier: Apache-2.0
"""``headrace peek``: show messages of a queue without consuming them."""

from __future__ import annotations

import base64
import codecs
import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from headrace.cli.broker_url import (
    DEFAULT_URL,
    QUEUE,
    consumer_arguments,
    open_channel,
    parse_position,
    selector_option,
)
from headrace.cli.environment import FromEnvironment
from headrace.cli.management import exchange, management_option
from headrace.cli.output import TSV_WITHOUT_HEADER, Answer, choose_format, json_flag, print_rows

if TYPE_CHECKING:
    from headrace.client.blocking import Consumer, Delivery

PREFETCH = 100  # Messages that the broker sends ahead.
PREVIEW = 60  # Characters of a body in a table.
TABLE_SIZE = 4 * PREVIEW + 8  # Bytes that hold these, and the beginning of more.
BODY_SIZE = 1024  # Bytes of a body in JSON, by default.
BODY_SIZE_MAX = 1 << 20
COLUMNS = ("position", "exchange", "routing_key", "properties", "headers", "bytes", "body")
PROPERTIES = (
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id"),
    *("type", "user_id", "app_id", "cluster_id", "timestamp", "expires", "due", "persistent"),
    "redelivered",
)
SELECTED = (  # Names that --property takes for properties; all others are headers.
    *("content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id"),
    *("type", "user_id", "app_id", "cluster_id", "exchange", "routing_key", "subject", "to"),
    *("delivery_mode", "durable", "redelivered", "size", "position"),
)
NEXT = {"x-filter-no-consume": True, "x-filter-auto-close": True}  # In the order of delivery.
RANGE = {"x-browse": True}  # In order of position.
OWN_HEADERS = ("x-stream-offset", "x-stream-arrival-ms", "x-redelivered")


@click.command(short_help="Show messages of a queue without consuming them.")
@click.option(
    "--url",
    cls=FromEnvironment,
    envvar="HEADRACE_URL",
    metavar="URL",
    help="The broker, amqp:// or amqps://, with a user who may read the queue; also "
    "HEADRACE_URL. [the management socket]",
)
@management_option
@click.option("--vhost", help="The virtual host; with --url, that of the URL. [the default one]")
@selector_option
@click.option(
    "--property",
    "conditions",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only messages with this property (content_type, type, message_id, …) or header; "
    "`headers.NAME` is always a header. May be repeated: all must match.",
)
@click.option(
    "--limit",
    "--count",
    "-n",
    "count",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Maximum number of messages.",
)
@click.option(
    "--from",
    "start",
    metavar="PLACE",
    help="Show messages in order of position from here on: a number, first, last or next, or "
    "an ISO time. [in the order of delivery]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "tsv", "json", "body"]),
    help="A table, values separated by tabs, one JSON object per line, or only the bodies. "
    "[table on a terminal, tsv elsewhere]",
)
@json_flag
@click.option(
    "--body-bytes",
    type=click.IntRange(0, BODY_SIZE_MAX),
    help=f"Maximum bytes of each body, except in tables. [{BODY_SIZE}; all with --format body]",
)
@click.option("--body-octets", type=click.IntRange(0, BODY_SIZE_MAX), hidden=True)  # Former name.
@click.argument("queue", type=QUEUE)
@click.pass_context
def peek(
    context: click.Context,
    socket: Path,
    url: str | None,
    vhost: str | None,
    selector: str,
    conditions: tuple[str, ...],
    count: int,
    start: str | None,
    form: str | None,
    as_json: bool,
    body_bytes: int | None,
    body_octets: int | None,
    queue: str,
) -> None:
    """Show messages of QUEUE, of any type, without consuming them.

    Messages are shown in the order of delivery; with --from in order of position.

    The command uses the socket in the data directory of a broker on this machine, and needs the
    rights of the broker's system user. With --url it connects to any Headrace broker as a client.
    Without both, and without a socket, it tries the default port of this machine.
    """
    form = choose_format(form, as_json) or ("table" if sys.stdout.isatty() else "tsv")
    body_size = body_octets if body_bytes is None else body_bytes
    if body_size is None:
        body_size = BODY_SIZE_MAX if form == "body" else BODY_SIZE
    if form in ("table", "tsv"):
        body_size = TABLE_SIZE
    condition = join_conditions(selector, conditions)
    position = None if start is None else parse_position(start, "--from")
    url = choose_broker(context, socket, url)
    if url is None:
        rows = request_rows(
            socket, queue=queue, vhost=vhost, selector=condition, count=count, bytes=body_size,
            **{"from": position.isoformat() if isinstance(position, datetime) else position},
        )  # fmt: skip
    elif vhost is None:
        rows = consume_rows(url, queue, condition, count, position, body_size)
    else:
        raise click.UsageError("--vhost is for the socket; a URL names its virtual host")
    with contextlib.suppress(BrokenPipeError):
        show(rows, form)


def show(rows: Iterator[Answer], form: str) -> None:
    """Print the messages."""
    if form == "json":
        for row in rows:
            click.echo(json.dumps(row))
    elif form == "body":
        cut = 0
        for row in rows:
            sys.stdout.buffer.write(decode_body(row) + b"\n")
            sys.stdout.buffer.flush()
            cut += "cut" in row
        if cut:
            click.echo(f"bodies cut: {cut}", err=True)
    elif not print_rows(
        map(to_table_row, rows), COLUMNS, TSV_WITHOUT_HEADER if form == "tsv" else form
    ):
        click.echo("no such messages", err=True)


def to_table_row(row: Answer) -> Answer:
    """Return a message as a row of a table."""
    text = decode_body(row).decode("utf-8", "backslashreplace")
    properties = [(name, row[name]) for name in PROPERTIES if row.get(name) not in (None, False)]
    if row.get("class", "basic") != "basic":
        properties.insert(0, ("class", row["class"]))
    more = "…" if len(text) > PREVIEW or "cut" in row else ""
    return {
        "position": row["position"],
        "exchange": row["exchange"],
        "routing_key": row["routing_key"],
        "properties": format_pairs(properties),
        "headers": format_pairs(list(row["headers"].items())),
        "bytes": row["bytes"],
        "body": text[:PREVIEW] + more,
    }


def format_pairs(items: list[tuple[str, object]]) -> str:
    """Return names and values as one text."""
    return " ".join(f"{name}={value}" for name, value in items)


def decode_body(row: Answer) -> bytes:
    """Return the body of a row, or its beginning."""
    if "body_base64" in row:
        return base64.b64decode(row["body_base64"])
    return str(row["body"]).encode()


# --- The selector --------------------------------------------------------------------------------


def join_conditions(selector: str, conditions: tuple[str, ...]) -> str:
    """Return the selector that ``--selector`` and all ``--property`` make together."""
    terms = [equality_term(condition) for condition in conditions]
    if not terms:
        return selector
    return " AND ".join([f"({selector})", *terms] if selector.strip() else terms)


def equality_term(condition: str) -> str:
    """Return the term of a selector for a condition NAME=VALUE of ``--property``.

    The value matches text, and also a number or boolean of this spelling.
    """
    name, equals, value = condition.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--property {condition!r} is not NAME=VALUE")
    name = name.replace("-", "_") if name.replace("-", "_") in SELECTED else name
    name = f"amqp.{name}" if name in SELECTED else name.removeprefix("headers.")
    quoted = '"' + name.replace('"', '""') + '"'
    text = value.replace("'", "''")
    terms = [f"{quoted} = '{text}'"]
    if value.lower() in ("true", "false"):
        terms.append(f"{quoted} = {value.upper()}")
    with contextlib.suppress(ValueError):
        terms.append(f"{quoted} = {int(value)}")
    return f"({' OR '.join(terms)})"


# --- The broker ----------------------------------------------------------------------------------


def choose_broker(context: click.Context, socket: Path, url: str | None) -> str | None:
    """Return the broker's URL; None for the management socket.

    The command line overrides environment variables. Without either, use the socket of the
    default data directory if it exists, else the default port of this machine.
    """
    sources = {name: context.get_parameter_source(name) for name in ("url", "data", "where")}
    on_command_line = [name for name in sources if sources[name] is ParameterSource.COMMANDLINE]
    if "url" in on_command_line:
        if len(on_command_line) > 1:
            raise click.UsageError("give --url, or --data or --socket")
        return url
    if on_command_line or ParameterSource.ENVIRONMENT in (sources["data"], sources["where"]):
        return None
    return url if url is not None or socket.exists() else DEFAULT_URL


def request_rows(socket: Path, **fields: object) -> Iterator[Answer]:
    """Yield the rows that the management socket sends."""
    return (line["item"] for line in exchange(socket, "peek", fields) if "item" in line)


def consume_rows(
    url: str,
    queue: str,
    selector: str,
    count: int,
    position: str | int | datetime | None,
    body_size: int,
) -> Iterator[Answer]:
    """Yield up to ``count`` messages that a browsing consumer receives, as rows."""
    arguments = {**(NEXT if position is None else RANGE), **consumer_arguments(selector, position)}
    prefetch = min(PREFETCH, count)
    with (
        open_channel(url) as channel,
        channel.consume(queue, prefetch=prefetch, arguments=arguments) as consumer,
    ):
        for delivery in itertools.islice(read_deliveries(consumer), count):
            yield to_row(delivery, body_size)


def read_deliveries(consumer: Consumer) -> Iterator[Delivery]:
    """Yield deliveries until the broker cancels the consumer; acknowledging gives credit."""
    from headrace.client import ConsumerCancelled

    with contextlib.suppress(ConsumerCancelled):
        for delivery in consumer:
            if delivery.offset is None:  # Not a copy: acknowledging would consume it.
                raise click.ClickException("this broker does not support browsing")
            yield delivery
            delivery.ack()


def to_row(delivery: Delivery, size_max: int) -> Answer:
    """Return a delivery as a row of the management socket."""
    headers = delivery.headers
    row: Answer = {
        "position": delivery.offset,
        "exchange": delivery.exchange,
        "routing_key": delivery.routing_key,
        "redelivered": bool(delivery.redelivered or headers.get("x-redelivered")),
        "persistent": delivery.persistent,
    }
    for name in PROPERTIES:
        value = getattr(delivery, name, None)
        if value is not None and name not in row:
            row[name] = value.isoformat() if isinstance(value, datetime) else value
    if delivery.expiration is not None:
        row["expiration_s"] = delivery.expiration.total_seconds()
    row["headers"] = {
        name: to_json_value(value) for name, value in headers.items() if name not in OWN_HEADERS
    }
    row["bytes"] = len(delivery.body)
    body = bytes(delivery.body[:size_max])
    cut = len(body) < len(delivery.body)
    if cut:
        row["cut"] = True
    try:
        row["body"] = codecs.getincrementaldecoder("utf-8")().decode(body, not cut)
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(body).decode()
    return row


def to_json_value(value: object) -> object:
    """Return the value of a header as a JSON value."""
    from headrace.server.config.json_values import as_json

    return as_json(value)
