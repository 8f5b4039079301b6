# SPDX-License-Identifier: Apache-2.0
"""The command ``headrace``, which imports the module of a subcommand on use.

``headrace --help`` and completion import no subcommand. The modules of the subcommands import
client, broker, Spark and other packages within their functions.
"""

import click

from headrace import __version__
from headrace.cli.commands import Commands, LazyCommand


def _entry(module: str, name: str, summary: str) -> LazyCommand:
    return LazyCommand(f"headrace.{module}", name, summary)


SECTIONS: dict[str, dict[str, LazyCommand]] = {
    "Run a broker": {
        "serve": _entry("cli.server.serve", "serve", "Run a broker until SIGTERM or SIGINT."),
        "console": _entry(
            "cli.server.console", "console", "Serve RabbitMQ's HTTP API, metrics and pages."
        ),
        "status": _entry("cli.server.service", "status", "Print addresses and counts of a broker."),
        "health": _entry(
            "cli.server.service", "health", "Check a broker; exit 1 if a check fails."
        ),
        "drain": _entry("cli.server.service", "drain", "Take a broker out of service."),
        "resume": _entry("cli.server.service", "resume", "Take a broker back into service."),
        "reload": _entry("cli.server.service", "reload", "Read the settings again."),
        "logs": _entry("cli.server.service", "logs", "Rotate or reopen the log file."),
        "cluster": _entry("cli.server.cluster", "cluster", "Show the brokers of a cluster."),
        "move": _entry("cli.server.cluster", "move", "Let another broker serve a virtual host."),
        "alarm": _entry("cli.server.alarms", "alarm", "List alarms, block publishers by hand."),
        "version": _entry("cli", "version", "Print the version."),
    },
    "Messages": {
        "publish": _entry(
            "cli.messages.messages", "publish", "Publish arguments, lines or a file."
        ),
        "consume": _entry(
            "cli.messages.messages", "consume", "Print messages and acknowledge them."
        ),
        "get": _entry("cli.messages.messages", "get", "Consume one message of a queue."),
        "route": _entry("cli.inspect.routes", "route", "Show the queues a message would reach."),
        "peek": _entry("cli.inspect.peek", "peek", "Show messages without consuming them."),
        "sql": _entry("cli.sql", "sql", "Query streams, queues and archives with SQL."),
        "messages": _entry(
            "cli.messages.move", "messages", "Move, copy, requeue or delete messages."
        ),
    },
    "Objects": {
        "declare": _entry("cli.admin.objects", "declare", "Declare a queue, exchange, …"),
        "delete": _entry("cli.admin.objects", "delete", "Delete a queue, exchange, …"),
        "purge": _entry("cli.admin.objects", "purge", "Delete the ready messages of a queue."),
    },
    "Inspect": {
        "list": _entry("cli.inspect.lists", "list_kind", "List queues, connections, consumers, …"),
        "show": _entry("cli.inspect.lists", "show", "Print the details of one object."),
        "close": _entry("cli.inspect.lists", "close", "Close client connections with a reason."),
        "trace": _entry("cli.server.trace", "trace", "Copy messages to amq.rabbitmq.trace."),
    },
    "Streams and transactions": {
        "groups": _entry("cli.stream.groups", "groups", "Set positions of stream readers."),
        "super-stream": _entry(
            "cli.stream.super_streams", "super_stream", "Manage streams behind an exchange."
        ),
        "leases": _entry("cli.stream.leases", "leases", "List and release leases of messages."),
        "sinks": _entry("cli.stream.sinks", "sinks", "List and abort writers of staged batches."),
        "transaction": _entry(
            "cli.stream.transactions", "transaction", "List and decide distributed transactions."
        ),
    },
    "Accounts and rules": {
        "user": _entry("cli.admin.accounts", "user", "Add, delete and list users."),
        "vhost": _entry("cli.admin.accounts", "vhost", "Add, delete and list virtual hosts."),
        "permission": _entry("cli.admin.accounts", "permission", "Set permissions of users."),
        "policy": _entry("cli.admin.policies", "policy", "Set arguments of queues by patterns."),
        "operator-policy": _entry(
            "cli.admin.policies", "operator_policy", "Set limits that no policy exceeds."
        ),
        "limits": _entry("cli.admin.policies", "limits", "Set limits of virtual hosts and users."),
    },
    "Data": {
        "definitions": _entry(
            "cli.admin.definitions_command", "definitions", "Export or import definitions."
        ),
        "backup": _entry("cli.server.backups", "backup", "Back up a running broker."),
        "restore": _entry("cli.server.backups", "restore", "Restore a backup to a data directory."),
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
            "cli.check.conformance", "conformance", "Check a broker for the rules of AMQP."
        ),
        "soak": _entry("cli.check.soaks", "soak", "Kill a broker again and again, and check."),
        "soak-spark": _entry(
            "cli.check.soaks", "soak_spark", "Kill a pipeline on Spark again and again."
        ),
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

    See `headrace COMMAND --help`. Begin with `headrace serve`.
    """
