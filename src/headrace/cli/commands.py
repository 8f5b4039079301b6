# SPDX-License-Identifier: Apache-2.0
"""Groups of commands with complete help, suggestions for misspelt names and lazy imports."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace import extras
from headrace.cli.output import printable

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # Before click 8.4 it has no parameter.

HELP_LENGTH_MAX = 1000  # Characters; click cuts longer summaries in the list of commands.


class Group(click.Group):
    """A group with complete help lines, which suggests commands for misspelt ones."""

    group_class = type  # Nested groups have this class, too.

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not (name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name)):
            ctx.fail(f"No such command '{name}'.{suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(HELP_LENGTH_MAX)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class SuggestingChoice(_Choice):
    """A choice that suggests values for misspelt ones.

    ``former`` maps values of earlier versions, which are accepted and not shown, to present ones.
    """

    def __init__(self, choices: Sequence[str], former: Mapping[str, str] | None = None) -> None:
        super().__init__(choices)
        self.former = former or {}

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        try:
            return super().convert(self.former.get(str(value), value), param, ctx)
        except click.BadParameter as error:
            self.fail(error.message + suggestion(str(value), self.choices), param, ctx)


class LazyCommand(NamedTuple):
    """A command that is imported on use."""

    module: str
    name: str  # The name of the command's object in the module.
    help: str


class Commands(Group):
    """The main group, whose help has sections and whose commands are imported on use."""

    def __init__(
        self,
        name: str | None = None,
        *,
        sections: Mapping[str, Mapping[str, LazyCommand]],
        callback: Callable[..., object],
        params: list[click.Parameter],
        help: str | None = None,  # noqa: A002 - click's names
        context_settings: dict[str, object] | None = None,
    ) -> None:
        super().__init__(
            name, callback=callback, params=params, help=help, context_settings=context_settings
        )
        self.sections = sections
        self.entries = {name: entry for rows in sections.values() for name, entry in rows.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        try:
            command = getattr(importlib.import_module(entry.module), entry.name)
        except ImportError:
            if ctx.resilient_parsing:  # Completion works without the commands whose import fails.
                return None
            raise
        assert isinstance(command, click.Command)
        command.short_help = entry.help
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))
        for title, entries in self.sections.items():
            with formatter.section(title):
                rows = [(name.ljust(width), entry.help) for name, entry in entries.items()]
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; report errors of files, texts and imports as a printable sentence."""
        try:
            result: object = super().invoke(ctx)
            return result
        except click.ClickException as error:
            vars(error)["message"] = printable(
                error.message, "\n\t"
            )  # The attribute is final to mypy.
            raise
        except UnicodeEncodeError as error:
            if error.encoding != "utf-8":
                raise
            text = printable(error.object)
            raise click.ClickException(f"'{text:.80}' is not valid UTF-8") from None
        except ImportError as error:
            hint = extras.describe_missing(error)
            if hint is None:
                raise
            raise NotInstalled(hint) from None
        except OSError as error:
            if error.filename is None:
                raise
            path = printable(str(error.filename))
            raise click.ClickException(f"{path}: {error.strerror}") from None


class NotInstalled(click.ClickException):
    """A package that the command needs is missing."""

    exit_code = 2  # As for other usage errors; 1 is a failed command.


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return a question that suggests up to two similar names; "" if there are none."""
    matches = difflib.get_close_matches(name, names, n=2)
    return f" Did you mean {' or '.join(matches)}?" if matches else ""
