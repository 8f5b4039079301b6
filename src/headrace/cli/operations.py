# SPDX-License-Identifier: Apache-2.0
"""Commands that are one call: open the target, call, print what comes back.

A target is a management socket, a broker's queue of requests, a channel, or a data directory. The
decorator :meth:`Target.command` gives a command the target's option and what its output needs::

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
    """A place that commands call, and the option that names it."""

    option: Decorator
    argument: str  # The name of the option's value.
    open: Callable[..., AbstractContextManager[Opened]]  # Takes that value.

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
        """Make a command of a call, in a group if one is given.

        A text that the call returns is printed. With ``columns`` it returns rows, with ``facts``
        one object. JSON has the columns, or with ``wide`` or ``convert_row`` all fields;
        ``convert_row`` makes the row of other forms. ``opening`` are further arguments of ``open``.
        """

        def decorate(call: Callable[Concatenate[Opened, ...], object]) -> click.Command:
            def command(*, form: str | None = None, **given: object) -> None:
                with self.open(given.pop(self.argument), **opening) as opened:
                    outcome = call(opened, **given)
                    if columns:
                        rows = cast("Iterable[Row]", outcome)
                        if convert_row is not None and form != "json":
                            rows = map(convert_row, rows)
                        print_rows(rows, columns, form, wide=wide or convert_row is not None)
                    elif facts:
                        print_facts(cast("Row", outcome), form)
                    elif isinstance(outcome, str):
                        click.echo(outcome)

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
