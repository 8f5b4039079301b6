# SPDX-License-Identifier: Apache-2.0
"""Commands that connect to a broker by its URL: options, connections and error texts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.cli.environment import FromEnvironment
from headrace.cli.operations import Target
from headrace.cli.output import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from headrace.client import Event
    from headrace.client.blocking import Channel, Connection
    from headrace.client.blocking_pipeline import Requests
    from headrace.wire.table import Value

Function = TypeVar("Function", bound=Callable[..., object])

DEFAULT_URL = "amqp://guest:guest@127.0.0.1:5672/"
ANSWER_S = 30.0  # The time limit for the broker's answer to a request.
NAME = "headrace cli"  # The name of the command's connections.
NAME_SIZE_MAX = 255
OFFSET_MAX = (1 << 63) - 1


def broker_option(function: Function) -> Function:
    """Add the option for the broker's URL."""
    return click.option(
        "--url",
        cls=FromEnvironment,
        envvar="HEADRACE_URL",
        default=DEFAULT_URL,
        metavar="URL",
        help="The broker, amqp:// or amqps://; also HEADRACE_URL. [a local one]",
    )(function)


selector_option = click.option(
    "--selector",
    default="",
    metavar="CONDITION",
    help='Only messages that match this condition on headers and properties, such as "region '
    "= 'north'\".",
)


class Name(click.types.StringParamType):
    """The name of a queue, an exchange or a group, of up to `NAME_SIZE_MAX` bytes.

    Completion reads existing names from the broker on this machine, if one runs.
    """

    def __init__(self, kind: str = "", *, optional: bool = False) -> None:
        self._optional = optional  # "" is accepted.
        self._kind = kind  # A kind of `headrace list`; "" for no completion.

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            size = len(value.encode())
        except UnicodeEncodeError:
            self.fail(f"{printable(value)} is not valid UTF-8", param, ctx)
        if not size and not self._optional:
            self.fail("a name cannot be empty", param, ctx)
        if size > NAME_SIZE_MAX:
            self.fail(f"a name may have at most {NAME_SIZE_MAX} bytes, not {size}", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from headrace.cli.management import names

        location = (ctx.params.get("data"), ctx.params.get("where"))
        matches = names(self._kind, incomplete, *location) if self._kind else []
        return [CompletionItem(name) for name in matches]


NAMED = Name()
EXCHANGE, QUEUE, STREAM = Name("exchanges"), Name("queues"), Name("streams")


@contextlib.contextmanager
def open_connection(url: str, timeout_s: float | None = None) -> Iterator[Connection]:
    """Connect; an error ends the command with one sentence."""
    from headrace.client import ClientError, ConnectFailed
    from headrace.client.blocking import connect

    try:
        with connect(
            url, timeout_s=timeout_s, reconnect=None, name=NAME, on_event=print_alarm
        ) as connection:
            yield connection
    except (ClientError, TimeoutError, ValueError) as error:  # ValueError: too large for a frame.
        has_default_url = url == DEFAULT_URL and type(error) is ConnectFailed
        hint = " (--url or HEADRACE_URL names another broker)" if has_default_url else ""
        raise click.ClickException(reason(error) + hint) from None


def print_alarm(event: Event) -> None:
    """Print a line if the broker blocks or unblocks publishers."""
    from headrace.client import Blocked, Unblocked

    if isinstance(event, Blocked):
        click.echo(f"the broker blocks publishers: {printable(event.reason)}; waiting", err=True)
    elif isinstance(event, Unblocked):
        click.echo("the broker accepts messages again", err=True)


@contextlib.contextmanager
def open_channel(url: str) -> Iterator[Channel]:
    """Open a channel with confirms; an error ends the command with one sentence."""
    with open_connection(url) as connection, connection.channel() as channel:
        yield channel


@contextlib.contextmanager
def open_requests(url: str, queue: str = "") -> Iterator[Requests]:
    """Open the requests of a broker, by default through its queue for pipelines.

    An error ends the command with one sentence.
    """
    from headrace.client.blocking_pipeline import Requests
    from headrace.client.requests import PIPELINE

    with (
        open_connection(url, ANSWER_S) as connection,
        Requests(connection, queue or PIPELINE) as requests,
    ):
        yield requests


BY_CHANNEL = Target(broker_option, "url", open_channel)
BY_REQUEST = Target(broker_option, "url", open_requests)


def reason(error: Exception) -> str:
    """Return the text of an error as a printable line."""
    from headrace.client.requests import RequestRefused

    match error:
        case RequestRefused():
            return printable(error.text)
        case UnicodeEncodeError():
            return f"'{printable(error.object)}' is not valid UTF-8"
        case _:
            return printable(str(error))


def consumer_arguments(selector: str, position: str | int | datetime | None) -> dict[str, Value]:
    """Return the arguments of a consumer with a selector and a starting position."""
    arguments: dict[str, Value] = {}
    if selector.strip():
        arguments["x-filter-jms-selector"] = selector
    if position is not None:
        arguments["x-stream-offset"] = position
    return arguments


def parse_position(text: str, option: str) -> str | int | datetime:
    """Return the position in a queue or stream: first, last, next, an offset or a time.

    Raises:
        click.UsageError: the text is not a position; the message has the name of the option.
    """
    if text in ("first", "last", "next"):
        return text
    if text.isascii() and text.isdigit() and int(text[:20]) <= OFFSET_MAX:
        return int(text[:20])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(
            f"{option} {text!r:.80} is neither a position, first, last, next nor an ISO time"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
