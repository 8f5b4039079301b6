# SPDX-License-Identifier: Apache-2.0
"""How commands talk to a broker as a client does: by URL, with messages and requests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from headrace.cli.output import printable
from headrace.client import ClientError, ConnectFailed
from headrace.client.blocking import Channel, Connection, connect
from headrace.client.blocking_pipeline import Requests
from headrace.client.requests import PIPELINE, RequestRefused

Function = TypeVar("Function", bound=Callable[..., Any])

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"
ANSWER_S = 30.0  # How long the broker may take for what it is asked.
NAME = "headrace cli"  # What the broker knows the connection as.
NAME_OCTETS_MAX = 255
OFFSET_MAX = (1 << 63) - 1


def broker_option(function: Function) -> Function:
    """The option that says which broker."""
    return click.option(
        "--url",
        envvar="HEADRACE_URL",
        default=DEFAULT_URL,
        metavar="URL",
        help="The broker, amqp:// or amqps://; also HEADRACE_URL. [a local one]",
    )(function)


selector_option = click.option(
    "--selector",
    default="",
    metavar="CONDITION",
    help="Which messages: a condition on headers and properties, such as \"region = 'north'\".",
)


class Name(click.types.StringParamType):
    """The name of a queue, an exchange, a group: what every version of AMQP can carry."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            octets = len(value.encode())
        except UnicodeEncodeError:
            self.fail(f"{printable(value)} is no text in UTF-8", param, ctx)
        if not octets:
            self.fail("a name cannot be empty", param, ctx)
        if octets > NAME_OCTETS_MAX:
            self.fail(f"a name has {NAME_OCTETS_MAX} octets at most, not {octets}", param, ctx)
        return value


NAMED = Name()


@contextlib.contextmanager
def connected(url: str, timeout_s: float | None = None) -> Iterator[Connection]:
    """A connection; what goes wrong ends the command with one sentence."""
    try:
        with connect(url, timeout_s=timeout_s, reconnect=None, name=NAME) as connection:
            yield connection
    except (ClientError, TimeoutError, ValueError) as error:  # The last: it fits no frame.
        usual = url == DEFAULT_URL and type(error) is ConnectFailed
        hint = "; --url or HEADRACE_URL says where another broker is" if usual else ""
        raise click.ClickException(reason(error) + hint) from None


@contextlib.contextmanager
def open_channel(url: str) -> Iterator[Channel]:
    """A channel with confirms; what goes wrong ends the command with one sentence."""
    with connected(url) as connection, connection.channel() as channel:
        yield channel


@contextlib.contextmanager
def open_requests(url: str, queue: str = PIPELINE) -> Iterator[Requests]:
    """Requests to a broker; what goes wrong ends the command with one sentence."""
    with connected(url, ANSWER_S) as connection, Requests(connection, queue) as requests:
        yield requests


def reason(error: Exception) -> str:
    """What a person is told of an error: of a request only why it was refused, in one line."""
    match error:
        case RequestRefused():
            return printable(error.text)
        case UnicodeEncodeError():
            return f"'{printable(error.object)}' is no text in UTF-8"
        case _:
            return printable(str(error))


def chosen(selector: str, place: str | int | datetime | None) -> dict[str, Any]:
    """The arguments of a consumer that wants only some messages, from some place on."""
    arguments: dict[str, Any] = {}
    if selector.strip():
        arguments["x-filter-jms-selector"] = selector
    if place is not None:
        arguments["x-stream-offset"] = place
    return arguments


def read_place(text: str, what: str) -> str | int | datetime:
    """A place in a queue or a stream, as the option or argument ``what`` says it."""
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit() and int(text[:20]) <= OFFSET_MAX:
        return int(text[:20])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{what} {text!r:.80} is neither a position, first, last, next nor an ISO time"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
