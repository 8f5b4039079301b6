# SPDX-License-Identifier: Apache-2.0
"""Commands that send requests to a broker's management socket.

See :mod:`headrace.server.management.socket`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import socket as sockets
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

import click

from headrace.cli.data_option import Function, data_option
from headrace.cli.environment import FromEnvironment
from headrace.cli.operations import Target
from headrace.cli.output import Answer, printable
from headrace.server.config.settings import Settings

ANSWER_S = 60.0  # The longest time between two lines of an answer.
NAMES_S = 1.0  # The same for completion.
NAMES_MAX = 500  # Maximum number of names that completion reads.
LOCATION_HINT = "name another with --data or --socket"


def management_option(function: Function) -> Function:
    """Add the options for the broker's directory or socket, as the argument ``socket``."""

    @data_option
    @click.option(
        "--socket",
        "where",
        cls=FromEnvironment,
        envvar="HEADRACE_MANAGEMENT_SOCKET",
        type=click.Path(path_type=Path),
        help="The broker's management socket, if it is not in --data; also "
        "HEADRACE_MANAGEMENT_SOCKET.",
    )
    @functools.wraps(function)
    def command(*args: object, data: Path, where: Path | None, **options: object) -> object:
        from headrace.management_socket import FILE_NAME

        path = data / FILE_NAME if where is None else where
        return function(*args, socket=path, **options)

    return command  # type: ignore[return-value]  # Click passes two options in place of `socket`.


BY_SOCKET = Target[Path](management_option, "socket", contextlib.nullcontext)


def ask(
    socket: Path,
    do: str,
    *,
    rows: Iterable[Answer] | None = None,
    timeout_s: float | None = ANSWER_S,
    **fields: object,
) -> Answer:
    """Send a request and return the final answer.

    ``rows`` are sent after the request, for operations that read rows. Fields that are None are
    omitted. An error ends the command with one sentence.
    """
    answer: Answer = {}
    for line in exchange(socket, do, fields, rows=rows, timeout_s=timeout_s):
        answer = line.get("done", answer)
    return answer


def list_items(
    socket: Path, do: str, *, timeout_s: float | None = ANSWER_S, **fields: object
) -> Iterator[Answer]:
    """Send a request for a list; yield its items as they arrive.

    Virtual hosts that no broker of the cluster could list are named on standard error.
    """
    for line in exchange(socket, do, fields, timeout_s=timeout_s):
        if "item" in line:
            yield line["item"]
        else:
            for reason in line["done"].get("missing", {}).values():
                click.echo(f"Warning: not listed: {printable(reason)}", err=True)


def exchange(
    socket: Path,
    do: str,
    fields: Mapping[str, object],
    *,
    rows: Iterable[Answer] | None = None,
    timeout_s: float | None = ANSWER_S,
) -> Iterator[Answer]:
    """Send a request; yield the lines of the answer, objects with ``item`` or ``done``."""
    request = {"do": do, **{key: value for key, value in fields.items() if value is not None}}
    with open_socket(socket, timeout_s) as (write, answers):
        try:
            write(request)
            if rows is not None:
                for row in rows:
                    write(row)
                write({"end": True})
        except (BrokenPipeError, ConnectionResetError):
            pass  # The broker has sent an error before it read all rows.
        except OSError as error:
            raise connection_error(socket, error) from None
        while True:
            try:
                line = answers.readline()
            except OSError as error:
                raise connection_error(socket, error) from None
            if not line:
                raise click.ClickException(f"the broker at {socket} closed the connection")
            answer: Answer = json.loads(line)
            if "error" in answer:
                raise click.ClickException(printable(str(answer["error"])))
            if "busy" in answer:  # The broker still works on the request.
                continue
            yield answer
            if "done" in answer:
                return


def names(kind: str, start: str, data: Path | None, socket: Path | None) -> list[str]:
    """Return the names of a kind of objects that begin with `start`, for completion.

    The result is empty if no broker runs.
    """
    from headrace.management_socket import FILE_NAME

    variable = os.environ.get("HEADRACE_MANAGEMENT_SOCKET")
    if socket is None and variable and data is None:
        socket = Path(variable)
    directory = data or Path(os.environ.get("HEADRACE_DATA") or Settings().data)
    matches: set[str] = set()
    with contextlib.suppress(click.ClickException, OSError, ValueError):
        rows = list_items(socket or directory / FILE_NAME, f"list {kind}", timeout_s=NAMES_S)
        for row in itertools.islice(rows, NAMES_MAX):
            if row["name"].startswith(start) and row["name"].isprintable():
                matches.add(row["name"])
    return sorted(matches)


@contextlib.contextmanager
def open_socket(
    path: Path, timeout_s: float | None
) -> Iterator[tuple[Callable[[Answer], None], IO[bytes]]]:
    """Connect; yield a function that sends an object as a line, and the file of answer lines."""
    from headrace.management_socket import short_address

    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            with short_address(path) as address:
                connection.connect(address)
        except OSError as error:
            raise connection_error(path, error) from None

        def write(value: Answer) -> None:
            connection.sendall(json.dumps(value).encode() + b"\n")

        with connection.makefile("rb") as answers:
            yield write, answers


def connection_error(path: Path, error: OSError) -> click.ClickException:
    """Return the error for a management socket that is not reachable."""
    with contextlib.suppress(OSError):  # The current directory may be deleted.
        path = path.absolute()  # The message shows the complete path.
    address = printable(str(path))
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return click.ClickException(
            f"no broker runs there: {address} does not exist; {LOCATION_HINT}"
        )
    if isinstance(error, ConnectionRefusedError):
        return click.ClickException(
            f"no broker runs there: nothing listens on {address}; {LOCATION_HINT}"
        )
    if isinstance(error, TimeoutError):
        return click.ClickException(f"the broker at {address} does not answer")
    reason = os.strerror(error.errno) if error.errno else str(error)
    return click.ClickException(f"the broker at {address} cannot be reached: {reason}")
