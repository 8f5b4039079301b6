# SPDX-License-Identifier: Apache-2.0
"""``headrace user``, ``vhost`` and ``permission``: accounts of a data directory.

They change the directory itself, whether or not a broker runs on it. A running broker applies the
changes within a second or two.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace import extras
from headrace.cli.commands import Group
from headrace.cli.data_option import data_option
from headrace.cli.operations import Target
from headrace.cli.output import Row, printable

if TYPE_CHECKING:
    from headrace.store.catalog.users import UserDirectory

# Copied from the model, so that help imports no model; a test compares.
QUEUE_TYPES = ("classic", "quorum", "stream")
UNKNOWN_ARGUMENTS = ("default", "refuse", "log", "ignore")
CLUSTER_VARIABLE = "HEADRACE_CLUSTER"
STANDBYS_VARIABLE = "HEADRACE_CLUSTER_STANDBYS"
UNRECORDED = ("data", "password", "form", "definition")  # Secrets, and values that events have.


@contextlib.contextmanager
def open_directory(data: Path, *, make: bool = False) -> Iterator[UserDirectory]:
    """Open the users of a data directory; an error ends the command with a message.

    With ``make`` a missing directory is created, for a broker that will start on it.
    """
    from headrace.model.policy.accounts import AccountError
    from headrace.store.catalog.database import FILE_NAME as DATABASE
    from headrace.store.catalog.users import UserDirectory
    from headrace.store.disk import Disk

    try:
        if make:
            Disk().make_directory(str(data.absolute()))
        elif not (data / DATABASE).exists():
            raise AccountError(f"{data} has no data of a broker: {data / DATABASE} does not exist")
        check_schema(data)
        with contextlib.closing(UserDirectory(data, command_line())) as directory:
            replicate_changes(data, directory)
            try:
                yield directory
            except (AccountError, click.ClickException) as error:
                directory.notes.refuse(str(error))
                raise
    except AccountError as error:
        raise click.ClickException(printable(str(error))) from None
    except OSError as error:
        raise click.ClickException(f"data directory {data}: {error.strerror}") from None


def replicate_changes(data: Path, directory: UserDirectory) -> None:
    """Replicate changes to the cluster of the data directory, if it belongs to one.

    Raises:
        AccountError: the cluster's URL is not set, or its database is of another cluster or does
            not answer.
    """
    from headrace.model.policy.accounts import AccountError
    from headrace.store.data_directory import read_cluster_id
    from headrace.store.errors import StoreError

    cluster_id = read_cluster_id(data)
    if not cluster_id:
        return
    url = os.environ.get(CLUSTER_VARIABLE)
    if not url:
        raise AccountError(
            f"{data} belongs to a cluster, whose users are in its database: set "
            f"{CLUSTER_VARIABLE} to the database's URL, or use the console of a running broker"
        )
    extras.require("psycopg")
    from headrace.store.catalog.replica import CatalogReplica
    from headrace.store.ledger.postgres_catalog import PostgresCatalog
    from headrace.store.ledger.postgres_cluster import Cluster
    from headrace.store.ledger.postgres_session import Address

    standbys = os.environ.get(STANDBYS_VARIABLE, "").lower() not in ("0", "false", "no", "off")
    try:
        cluster = Cluster(Address(url), standbys=standbys)
        cluster.id = cluster_id
        replica = CatalogReplica(PostgresCatalog(cluster))
        replica.load()
        directory.replicate(replica)
    except (OSError, StoreError) as error:
        raise AccountError(str(error)) from None


def command_line() -> str:
    """Return the command line for the audit log, without secrets."""
    context = click.get_current_context()
    options = [
        f"{name}={value!r}"
        for name, value in sorted(context.params.items())
        if name not in UNRECORDED and value not in (None, ())
    ]
    return " ".join((context.command_path.partition(" ")[2], *options))


def check_schema(data: Path) -> None:
    """Check that this version can read the schema of a data directory.

    Raises:
        AccountError: a newer Headrace has written the directory.
    """
    from headrace.model.policy.accounts import AccountError
    from headrace.store.data_directory import SCHEMA_VERSION

    file = data / "schema"
    version = file.read_text(errors="replace").strip() if file.exists() else ""
    if version.isdigit() and int(version) > SCHEMA_VERSION:
        raise AccountError(
            f"data directory {data} has schema {version}, written by a newer Headrace; "
            f"this version reads schemas up to {SCHEMA_VERSION}"
        )


def read_password(argument: str | None) -> str:
    """Return the password: the argument, or typed twice, or the first line of standard input."""
    if argument is not None:
        return argument
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


def check_tags(tags: tuple[str, ...]) -> None:
    """Raise ClickException if a tag is empty or contains white space."""
    if any(not tag or any(character.isspace() for character in tag) for tag in tags):
        raise click.ClickException("a tag must be one word")


PASSWORD = click.option(
    "--password", help="Prefer the prompt or a pipe: other users of the machine see arguments."
)


BY_DIRECTORY = Target(data_option, "data", open_directory)
VHOST = click.option("--vhost", default="/", show_default=True)
PERMISSION = ("user", "vhost", "configure", "write", "read")
TOPIC_PERMISSION = ("user", "vhost", "exchange", "write", "read")
NAME = click.argument("name")
USER = click.argument("name", metavar="USER")


@click.group(cls=Group)
def user() -> None:
    """Add, change, delete and list the users that may log in."""


@BY_DIRECTORY.command(user, "add", make=True)
@PASSWORD
@click.option(
    "--tag", "tags", multiple=True, help="A tag, such as management or viewer; may be repeated."
)
@NAME
def add_user(
    directory: UserDirectory, password: str | None, tags: tuple[str, ...], name: str
) -> None:
    """Add the user NAME. Set its permissions with `headrace permission set`."""
    from headrace.gateway.security.passwords import make_account

    check_tags(tags)
    directory.add_user(make_account(name, read_password(password), tags))


@BY_DIRECTORY.command(user, "delete")
@NAME
def delete_user(directory: UserDirectory, name: str) -> None:
    """Delete the user NAME and close its connections."""
    directory.delete_user(name)


@BY_DIRECTORY.command(user, "password")
@PASSWORD
@NAME
def change_password(directory: UserDirectory, password: str | None, name: str) -> None:
    """Change the password of the user NAME."""
    from headrace.gateway.security.passwords import make_account

    account = make_account(name, read_password(password))
    directory.set_password(name, account.password_hash, account.scram)


@BY_DIRECTORY.command(user, "tags")
@NAME
@click.argument("tags", nargs=-1, metavar="[TAG]...")
def change_tags(directory: UserDirectory, name: str, tags: tuple[str, ...]) -> None:
    """Replace the tags of the user NAME; without TAG, remove all of them."""
    from dataclasses import replace

    from headrace.model.policy.accounts import AccountError
    from headrace.store.catalog.changes import Changes

    check_tags(tags)
    account = directory.snapshot().accounts.get(name)
    if account is None:
        raise AccountError(f"there is no user '{name}'")
    directory.change(Changes(accounts={name: replace(account, tags=tags)}))


@BY_DIRECTORY.command(user, "list", columns=("name", "tags"))
def list_users(directory: UserDirectory) -> list[Row]:
    """Print each user and its tags."""
    accounts = directory.snapshot().accounts.values()
    return [{"name": account.name, "tags": " ".join(account.tags)} for account in accounts]


@click.group(cls=Group)
def vhost() -> None:
    """Add, configure, delete and list virtual hosts."""


@BY_DIRECTORY.command(vhost, "add", make=True)
@NAME
def add_vhost(directory: UserDirectory, name: str) -> None:
    """Add the virtual host NAME."""
    directory.add_vhost(name)


@BY_DIRECTORY.command(vhost, "set")
@click.option("--default-queue-type", type=click.Choice(QUEUE_TYPES))
@click.option(
    "--unknown-arguments",
    type=click.Choice(UNKNOWN_ARGUMENTS),
    help="Handling of unknown arguments of queues.",
)
@click.option("--description", help="A description; an empty text clears it.")
@click.option(
    "--tag", "tags", multiple=True, help="A tag that replaces the present ones; may be repeated."
)
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@click.option(
    "--protected/--unprotected",
    "protected_from_deletion",
    default=None,
    help="Protect it from deletion by the management socket and the console.",
)
@NAME
def set_vhost(directory: UserDirectory, name: str, no_tags: bool, **options: object) -> None:
    """Set properties of the virtual host NAME, and defaults that override the broker's settings."""
    from headrace.model.errors import InvalidArgument
    from headrace.model.policy.accounts import AccountError
    from headrace.model.policy.rules import metadata_key, read_metadata

    if no_tags and options["tags"]:
        raise click.UsageError("--no-tags and --tag exclude each other")
    key = metadata_key(name)
    metadata = directory.parameters.all().get(key, {})
    value = metadata | {
        field: setting for field, setting in options.items() if setting not in (None, ())
    }
    if no_tags:
        value["tags"] = ()
    try:
        read_metadata(value)
    except InvalidArgument as error:
        raise AccountError(error.text) from None
    directory.parameters.change({key: value})


@BY_DIRECTORY.command(vhost, "delete")
@NAME
def delete_vhost(directory: UserDirectory, name: str) -> None:
    """Delete the virtual host NAME with all its contents."""
    directory.delete_vhost(name)


@BY_DIRECTORY.command(vhost, "list", columns=("name",))
def list_vhosts(directory: UserDirectory) -> list[Row]:
    """Print each virtual host."""
    return [{"name": name} for name in directory.snapshot().vhosts]


@click.group(cls=Group)
def permission() -> None:
    """Set, clear and list permissions: regular expressions for configure, write and read."""


@BY_DIRECTORY.command(permission, "set")
@VHOST
@USER
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permission(
    directory: UserDirectory, vhost: str, name: str, configure: str, write: str, read: str
) -> None:
    """Give USER permissions in a virtual host, such as `set ada "" "^orders" ".*"`.

    An expression matches anywhere in a name; an empty one matches nothing.
    """
    from headrace.gateway.security.access import check_permission
    from headrace.model.policy.accounts import Permission

    permission = Permission(configure, write, read)
    check_permission(permission)
    directory.set_permission(name, vhost, permission)


@BY_DIRECTORY.command(permission, "clear")
@VHOST
@USER
def clear_permission(directory: UserDirectory, vhost: str, name: str) -> None:
    """Remove the permissions of USER in a virtual host."""
    directory.clear_permission(name, vhost)


@BY_DIRECTORY.command(permission, "list", columns=PERMISSION)
def list_permissions(directory: UserDirectory) -> list[Row]:
    """Print user, virtual host and the three expressions of each permission."""
    permissions = directory.snapshot().permissions
    fields = (
        (*key, permission.configure, permission.write, permission.read)
        for key, permission in permissions.items()
    )
    return [dict(zip(PERMISSION, row, strict=True)) for row in fields]


@permission.group()
def topic() -> None:
    """Restrict the routing keys of users at topic exchanges. By default all are allowed."""


@BY_DIRECTORY.command(topic, "set")
@VHOST
@USER
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topic_permission(
    directory: UserDirectory, vhost: str, name: str, exchange: str, write: str, read: str
) -> None:
    """Restrict USER at EXCHANGE, such as `topic set ada amq.topic "^{username}[.]" ".*"`.

    In an expression, {username} and {vhost} stand for those names.
    """
    from headrace.gateway.security.access import check_topic_permission
    from headrace.model.policy.accounts import TopicPermission

    permission = TopicPermission(write, read)
    check_topic_permission(permission)
    directory.set_topic_permission(name, vhost, exchange, permission)


@BY_DIRECTORY.command(topic, "clear")
@VHOST
@USER
@click.argument("exchange", required=False)
def clear_topic_permission(
    directory: UserDirectory, vhost: str, name: str, exchange: str | None
) -> None:
    """Remove the restriction of USER at EXCHANGE, or at all exchanges of a virtual host."""
    directory.clear_topic_permission(name, vhost, exchange)


@BY_DIRECTORY.command(topic, "list", columns=TOPIC_PERMISSION)
def list_topic_permissions(directory: UserDirectory) -> list[Row]:
    """Print user, virtual host, exchange, write and read of each restriction."""
    permissions = directory.snapshot().topic_permissions
    fields = ((*key, permission.write, permission.read) for key, permission in permissions.items())
    return [dict(zip(TOPIC_PERMISSION, row, strict=True)) for row in fields]
