# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``. Each subcommand is a module, imported when it is asked for."""

import importlib
from typing import Any

import click

from headrace import __version__
from headrace.cli.output import printable

# Name to module and object.
COMMANDS = {
    "alarm": ("headrace.cli.alarms", "alarm"),
    "backup": ("headrace.cli.backups", "backup"),
    "bench": ("headrace.bench.command", "bench"),
    "bench-spark": ("headrace.bench.spark", "bench_spark"),
    "close": ("headrace.cli.lists", "close"),
    "conformance": ("headrace.conformance.command", "conformance"),
    "consume": ("headrace.cli.messages", "consume"),
    "drain": ("headrace.cli.service", "drain"),
    "definitions": ("headrace.cli.definitions", "definitions"),
    "get": ("headrace.cli.messages", "get"),
    "groups": ("headrace.cli.groups", "groups"),
    "health": ("headrace.cli.service", "health"),
    "leases": ("headrace.cli.leases", "leases"),
    "limits": ("headrace.cli.policies", "limits"),
    "list": ("headrace.cli.lists", "list_kind"),
    "logs": ("headrace.cli.service", "logs"),
    "migrate": ("headrace.cli.migrate", "migrate"),
    "operator-policy": ("headrace.cli.policies", "operator_policy"),
    "messages": ("headrace.cli.moving", "messages"),
    "peek": ("headrace.cli.looking", "peek"),
    "permission": ("headrace.cli.accounts", "permission"),
    "pipeline": ("headrace.cli.pipelines", "pipeline"),
    "policy": ("headrace.cli.policies", "policy"),
    "publish": ("headrace.cli.messages", "publish"),
    "reload": ("headrace.cli.service", "reload"),
    "restore": ("headrace.cli.backups", "restore"),
    "resume": ("headrace.cli.service", "resume"),
    "serve": ("headrace.cli.serve", "serve"),
    "show": ("headrace.cli.lists", "show"),
    "sinks": ("headrace.cli.sinks", "sinks"),
    "trace": ("headrace.cli.trace", "trace"),
    "soak": ("headrace.testing.soak", "soak"),
    "soak-spark": ("headrace.testing.spark_soak", "soak_spark"),
    "status": ("headrace.cli.service", "status"),
    "super-stream": ("headrace.cli.super_streams", "super_stream"),
    "transaction": ("headrace.cli.transactions", "transaction"),
    "user": ("headrace.cli.accounts", "user"),
    "verify-data": ("headrace.cli.backups", "verify_data"),
    "version": ("headrace.cli", "version"),
    "vhost": ("headrace.cli.accounts", "vhost"),
}


class Commands(click.Group):
    """The subcommands, none of which is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place[0]), place[1])
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Do it; what is wrong with a file or a text ends the command with one sentence.

        Nothing is said that a terminal would obey.
        """
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message, "\n\t")  # Final, but ours to show.
            raise
        except UnicodeEncodeError as error:
            if error.encoding != "utf-8":
                raise
            text = printable(error.object)
            raise click.ClickException(f"'{text:.80}' is no text in UTF-8") from None
        except OSError as error:
            if error.filename is None:
                raise
            where = printable(str(error.filename))
            raise click.ClickException(f"{where}: {error.strerror}") from None


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """A durable AMQP broker and its tools."""
