# SPDX-License-Identifier: Apache-2.0
"""Commands that open a target, make a call and print its result.

A target is a management socket, a broker's queue of requests, a channel, or a data directory. The
decorator :meth:`Target.command` adds the options of the target and of the output::

    @BY_REQUEST.command(groups, "list", columns=("stream", "group", "position"))
    def list_all(requests: Requests) -> Iterator[Row]:
        return map(asdict, list_groups(requests))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Concatenate, Generic, TypeVar, cast

import click

from headrace.cli.output import Row, format_option, print_facts, print_rows

Opened = TypeVar("Opened")
Decorator = Callable[[Callable[..., object]], Callable[..., object]]


@dataclass(frozen=True)
class Target(Generic[Opened]):
    """A kind of target of commands."""

    option: Decorator  # Adds the option that names the target.
    argument: str  # The name of the function's argument for the option's value.
    open: Callable[..., AbstractContextManager[Opened]]  # Opens the target by that value.

    def command(
        self,
        group: click.Group | None,
        name: str,
        *,
        columns: Sequence[str] = (),
        wide: bool = False,
        convert_row: Callable[[Row], Row] | None = None,
        facts: bool = False,
        **opening: object,
    ) -> Callable[[Callable[Concatenate[Opened, ...], object]], click.Command]:
        """Return a decorator that makes a command of a call with the opened target.

        Args:
            group: the group of the command; None for a command without a group.
            name: the name of the command.
            columns: the columns to print, if the call returns rows. A text that another call
                returns is printed.
            wide: whether JSON has all fields of a row, not only the columns.
            convert_row: makes the row of the table and of tsv; JSON then has all fields.
            facts: whether the call returns one object, which is printed field by field.
            opening: further arguments of ``open``.
        """

        def decorate(call: Callable[Concatenate[Opened, ...], object]) -> click.Command:
            def command(*, form: str | None = None, **options: object) -> None:
                with self.open(options.pop(self.argument), **opening) as opened:
                    result = call(opened, **options)
                    if columns:
                        rows = cast("Iterable[Row]", result)
                        if convert_row is not None and form != "json":
                            rows = map(convert_row, rows)
                        print_rows(rows, columns, form, wide=wide or convert_row is not None)
                    elif facts:
                        print_facts(cast("Row", result), form)
                    elif isinstance(result, str):
                        click.echo(result)

            function: Callable[..., object] = command
            if columns or facts:
                function = format_option(function)
            for parameter in getattr(call, "__click_params__", ()):  # As click's decorators do.
                function = with_parameter(function, parameter)
            maker = click.command if group is None else group.command
            return maker(name, help=call.__doc__)(self.option(function))

        return decorate


def with_parameter(
    function: Callable[..., object], parameter: click.Parameter
) -> Callable[..., object]:
    """Add a parameter to a function that becomes a command."""
    listed: list[click.Parameter] = vars(function).setdefault("__click_params__", [])
    listed.append(parameter)
    return function
