# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``. Each subcommand is a module, imported when it is asked for.

`headrace --help` and TAB import none of them, and no module of a command imports at its top what
only the command itself needs: client, broker, Spark, packages of others.
"""

import click

from headrace import __version__
from headrace.cli.commands import Commands, Entry


def _entry(module: str, name: str, words: str) -> Entry:
    return Entry(f"headrace.{module}", name, words)


SECTIONS: dict[str, dict[str, Entry]] = {
    "Run a broker": {
        "serve": _entry("cli.server.serve", "serve", "Run a broker until SIGTERM or SIGINT."),
        "status": _entry(
            "cli.server.service", "status", "Say where it listens and how much it holds."
        ),
        "health": _entry(
            "cli.server.service", "health", "Say what is not well; exit 1 if anything."
        ),
        "drain": _entry("cli.server.service", "drain", "Take it out of service, clients go."),
        "resume": _entry("cli.server.service", "resume", "Take it back into service."),
        "reload": _entry("cli.server.service", "reload", "Have it read its settings again."),
        "logs": _entry("cli.server.service", "logs", "Rotate or reopen its log file."),
        "alarm": _entry("cli.server.alarms", "alarm", "List alarms, hold publishers by hand."),
        "version": _entry("cli", "version", "Print the version."),
    },
    "Messages": {
        "publish": _entry(
            "cli.messages.messages", "publish", "Publish arguments, lines or a file."
        ),
        "consume": _entry(
            "cli.messages.messages", "consume", "Print messages and acknowledge them."
        ),
        "get": _entry("cli.messages.messages", "get", "Take one message from a queue."),
        "peek": _entry("cli.inspect.peek", "peek", "Show messages and leave them in the queue."),
        "messages": _entry(
            "cli.messages.move", "messages", "Move, copy, requeue or delete messages."
        ),
    },
    "Objects": {
        "declare": _entry(
            "cli.admin.objects", "declare", "Make a queue, stream, exchange or binding."
        ),
        "delete": _entry("cli.admin.objects", "delete", "Delete one of these."),
        "purge": _entry("cli.admin.objects", "purge", "Delete the ready messages of a queue."),
    },
    "Look": {
        "list": _entry("cli.inspect.lists", "list_kind", "List queues, connections, consumers, …"),
        "show": _entry("cli.inspect.lists", "show", "Print all that is known of one thing."),
        "close": _entry("cli.inspect.lists", "close", "Close connections of clients."),
        "trace": _entry("cli.server.trace", "trace", "Copy what passes to amq.rabbitmq.trace."),
    },
    "Streams and transactions": {
        "groups": _entry("cli.stream.groups", "groups", "Positions of the readers of streams."),
        "super-stream": _entry(
            "cli.stream.super_streams", "super_stream", "Streams behind an exchange."
        ),
        "leases": _entry("cli.stream.leases", "leases", "What groups have leased from queues."),
        "sinks": _entry("cli.stream.sinks", "sinks", "Writers of staged batches."),
        "transaction": _entry(
            "cli.stream.transactions", "transaction", "Distributed transactions."
        ),
    },
    "Accounts and rules": {
        "user": _entry("cli.admin.accounts", "user", "Add, delete and list users."),
        "vhost": _entry("cli.admin.accounts", "vhost", "Add, delete and list virtual hosts."),
        "permission": _entry("cli.admin.accounts", "permission", "Say what users may do."),
        "policy": _entry("cli.admin.policies", "policy", "Settings by patterns of names."),
        "operator-policy": _entry(
            "cli.admin.policies", "operator_policy", "Limits no policy exceeds."
        ),
        "limits": _entry("cli.admin.policies", "limits", "Limits of virtual hosts and users."),
    },
    "Data": {
        "definitions": _entry(
            "cli.admin.definitions_command", "definitions", "Export or import definitions."
        ),
        "backup": _entry("cli.server.backups", "backup", "Back up a running broker."),
        "restore": _entry("cli.server.backups", "restore", "Make a data directory of a backup."),
        "verify-data": _entry(
            "cli.server.backups", "verify_data", "Check a backup or data directory."
        ),
        "migrate": _entry(
            "cli.migrate.migrate", "migrate", "Move queues here from another broker."
        ),
    },
    "Spark": {
        "pipeline": _entry(
            "cli.pipeline.pipelines", "pipeline", "Run pipelines of TOML files on Spark."
        ),
    },
    "Measure and check": {
        "bench": _entry("bench.command", "bench", "Measure a broker, or compare two."),
        "bench-spark": _entry("bench.spark.command", "bench_spark", "Measure Spark's data source."),
        "conformance": _entry(
            "cli.check.conformance", "conformance", "Put a broker to the rules of AMQP."
        ),
        "soak": _entry("cli.check.soaks", "soak", "Kill a broker again and again, and check."),
        "soak-spark": _entry("cli.check.soaks", "soak_spark", "Kill a query of Spark likewise."),
    },
}
COMMANDS = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@click.group(
    cls=Commands, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """A durable AMQP broker and its tools.

    `headrace COMMAND --help` says more. Begin with `headrace serve`.
    """
