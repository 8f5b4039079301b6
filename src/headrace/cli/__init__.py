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
        "serve": _entry("cli.serve", "serve", "Run a broker until SIGTERM or SIGINT."),
        "status": _entry("cli.service", "status", "Say where it listens and how much it holds."),
        "health": _entry("cli.service", "health", "Say what is not well; exit 1 if anything."),
        "drain": _entry("cli.service", "drain", "Take it out of service, clients go."),
        "resume": _entry("cli.service", "resume", "Take it back into service."),
        "reload": _entry("cli.service", "reload", "Have it read its settings again."),
        "logs": _entry("cli.service", "logs", "Rotate or reopen its log file."),
        "alarm": _entry("cli.alarms", "alarm", "List alarms, hold publishers by hand."),
        "version": _entry("cli", "version", "Print the version."),
    },
    "Messages": {
        "publish": _entry("cli.messages", "publish", "Publish arguments, lines or a file."),
        "consume": _entry("cli.messages", "consume", "Print messages and acknowledge them."),
        "get": _entry("cli.messages", "get", "Take one message from a queue."),
        "peek": _entry("cli.looking", "peek", "Show messages and leave them in the queue."),
        "messages": _entry("cli.moving", "messages", "Move, copy, requeue or delete messages."),
    },
    "Objects": {
        "declare": _entry("cli.objects", "declare", "Make a queue, stream, exchange or binding."),
        "delete": _entry("cli.objects", "delete", "Delete one of these."),
        "purge": _entry("cli.objects", "purge", "Delete the ready messages of a queue."),
    },
    "Look": {
        "list": _entry("cli.lists", "list_kind", "List queues, connections, consumers, …"),
        "show": _entry("cli.lists", "show", "Print all that is known of one thing."),
        "close": _entry("cli.lists", "close", "Close connections of clients."),
        "trace": _entry("cli.trace", "trace", "Copy what passes to amq.rabbitmq.trace."),
    },
    "Streams and transactions": {
        "groups": _entry("cli.groups", "groups", "Positions of the readers of streams."),
        "super-stream": _entry("cli.super_streams", "super_stream", "Streams behind an exchange."),
        "leases": _entry("cli.leases", "leases", "What groups have leased from queues."),
        "sinks": _entry("cli.sinks", "sinks", "Writers of staged batches."),
        "transaction": _entry("cli.transactions", "transaction", "Distributed transactions."),
    },
    "Accounts and rules": {
        "user": _entry("cli.accounts", "user", "Add, delete and list users."),
        "vhost": _entry("cli.accounts", "vhost", "Add, delete and list virtual hosts."),
        "permission": _entry("cli.accounts", "permission", "Say what users may do."),
        "policy": _entry("cli.policies", "policy", "Settings by patterns of names."),
        "operator-policy": _entry("cli.policies", "operator_policy", "Limits no policy exceeds."),
        "limits": _entry("cli.policies", "limits", "Limits of virtual hosts and users."),
    },
    "Data": {
        "definitions": _entry(
            "cli.exchange_definitions", "definitions", "Export or import definitions."
        ),
        "backup": _entry("cli.backups", "backup", "Back up a running broker."),
        "restore": _entry("cli.backups", "restore", "Make a data directory of a backup."),
        "verify-data": _entry("cli.backups", "verify_data", "Check a backup or data directory."),
        "migrate": _entry("cli.migrate", "migrate", "Move queues here from another broker."),
    },
    "Spark": {
        "pipeline": _entry("cli.pipelines", "pipeline", "Run pipelines of TOML files on Spark."),
    },
    "Measure and check": {
        "bench": _entry("bench.command", "bench", "Measure a broker, or compare two."),
        "bench-spark": _entry("bench.spark", "bench_spark", "Measure Spark's data source."),
        "conformance": _entry(
            "cli.conformance", "conformance", "Put a broker to the rules of AMQP."
        ),
        "soak": _entry("cli.soaks", "soak", "Kill a broker again and again, and check."),
        "soak-spark": _entry("cli.soaks", "soak_spark", "Kill a query of Spark likewise."),
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
