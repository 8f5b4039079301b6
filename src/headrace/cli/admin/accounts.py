# SPDX-License-Identifier: Apache-2.0
"""``headrace user``, ``vhost`` and ``permission``: who may use the broker of a data directory.

They work on the directory itself, whether or not a broker runs on it. A running broker takes the
changes over within a second or two.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.commands import Group
from headrace.cli.data_option import data_option
from headrace.cli.output import format_option, print_rows, printable

if TYPE_CHECKING:
    from headrace.store.catalog.users import UserDirectory

# As the model has them; a test compares.
QUEUE_TYPES = ("classic", "quorum", "stream")
UNKNOWN_ARGUMENTS = ("default", "refuse", "log", "ignore")
UNTOLD = ("data", "password", "form", "definition")  # Secrets, and what events tell.


@contextlib.contextmanager
def open_directory(data: Path, *, make: bool = False) -> Iterator[UserDirectory]:
    """The users of a data directory; what goes wrong ends the command with one sentence.

    With ``make`` it is made when it is not there, for a broker that will start with it.
    """
    from headrace.model.policy.accounts import AccountError
    from headrace.store.catalog.database import FILE_NAME as DATABASE
    from headrace.store.catalog.users import UserDirectory
    from headrace.store.disk import Disk

    try:
        if make:
            Disk().make_directory(str(data.absolute()))
        elif not (data / DATABASE).exists():
            raise AccountError(f"no broker has worked in {data}: {data / DATABASE} does not exist")
        check_schema(data)
        with contextlib.closing(UserDirectory(data, told())) as directory:
            try:
                yield directory
            except (AccountError, click.ClickException) as error:
                directory.acts.refuse(str(error))
                raise
    except AccountError as error:
        raise click.ClickException(printable(str(error))) from None
    except OSError as error:
        raise click.ClickException(f"data directory {data}: {error.strerror}") from None


def told() -> str:
    """The command that runs, for the audit log: its words, and of its options no secret."""
    context = click.get_current_context()
    given = [
        f"{name}={value!r}"
        for name, value in sorted(context.params.items())
        if name not in UNTOLD and value not in (None, ())
    ]
    return " ".join((context.command_path.partition(" ")[2], *given))


def check_schema(data: Path) -> None:
    """Raise AccountError when a newer Headrace has written the data directory."""
    from headrace.model.policy.accounts import AccountError
    from headrace.store.data_directory import SCHEMA_VERSION

    file = data / "schema"
    version = file.read_text(errors="replace").strip() if file.exists() else ""
    if version.isdigit() and int(version) > SCHEMA_VERSION:
        raise AccountError(
            f"data directory {data} has schema {version}, written by a newer Headrace; "
            f"this one knows {SCHEMA_VERSION} at most"
        )


def read_password(given: str | None) -> str:
    """The password: given, typed twice, or the first line of standard input."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    return sys.stdin.readline().rstrip("\r\n")


PASSWORD = click.option(
    "--password", help="Better typed, or piped in: other users of the machine see arguments."
)


@click.group(cls=Group)
def user() -> None:
    """Users that may log in."""


@user.command("add")
@data_option
@PASSWORD
@click.option("--tag", "tags", multiple=True, help="A word to note; it gives no rights.")
@click.argument("name")
def add_user(data: Path, password: str | None, tags: tuple[str, ...], name: str) -> None:
    """Add the user NAME; permissions are given with `headrace permission set`."""
    from headrace.gateway.security.passwords import make_account

    with open_directory(data, make=True) as directory:
        if any(not tag or any(character.isspace() for character in tag) for tag in tags):
            raise click.ClickException("a tag is one word")
        directory.add_user(make_account(name, read_password(password), tags))


@user.command("delete")
@data_option
@click.argument("name")
def delete_user(data: Path, name: str) -> None:
    """Delete the user NAME; connections of that user are closed."""
    with open_directory(data) as directory:
        directory.delete_user(name)


@user.command("password")
@data_option
@PASSWORD
@click.argument("name")
def change_password(data: Path, password: str | None, name: str) -> None:
    """Change the password of the user NAME."""
    from headrace.gateway.security.passwords import make_account

    with open_directory(data) as directory:
        account = make_account(name, read_password(password))
        directory.set_password(name, account.password_hash, account.scram)


@user.command("list")
@data_option
@format_option
def list_users(data: Path, form: str | None) -> None:
    """Print each user and its tags."""
    with open_directory(data) as directory:
        found = directory.snapshot().accounts.values()
    rows = [{"name": account.name, "tags": " ".join(account.tags)} for account in found]
    print_rows(rows, ("name", "tags"), form)


@click.group(cls=Group)
def vhost() -> None:
    """Virtual hosts."""


@vhost.command("add")
@data_option
@click.argument("name")
def add_vhost(data: Path, name: str) -> None:
    """Add the virtual host NAME."""
    with open_directory(data, make=True) as directory:
        directory.add_vhost(name)


@vhost.command("set")
@data_option
@click.option("--default-queue-type", type=click.Choice(QUEUE_TYPES))
@click.option(
    "--unknown-arguments",
    type=click.Choice(UNKNOWN_ARGUMENTS),
    help="What arguments of queues do that the broker does not know.",
)
@click.option("--description")
@click.argument("name")
def set_vhost(data: Path, name: str, **given: str | None) -> None:
    """Say what holds in the virtual host NAME, where that is not what the settings say."""
    from headrace.model.errors import InvalidArgument
    from headrace.model.policy.accounts import AccountError
    from headrace.model.policy.parameters import Key
    from headrace.model.policy.rules import METADATA, METADATA_NAME, read_metadata

    with open_directory(data) as directory:
        key = Key(name, METADATA, METADATA_NAME)
        before = directory.parameters.all().get(key, {})
        value = before | {field: text for field, text in given.items() if text is not None}
        try:
            read_metadata(value)
        except InvalidArgument as error:
            raise AccountError(error.text) from None
        directory.parameters.change({key: value})


@vhost.command("delete")
@data_option
@click.argument("name")
def delete_vhost(data: Path, name: str) -> None:
    """Delete the virtual host NAME with everything in it."""
    with open_directory(data) as directory:
        directory.delete_vhost(name)


@vhost.command("list")
@data_option
@format_option
def list_vhosts(data: Path, form: str | None) -> None:
    """Print each virtual host."""
    with open_directory(data) as directory:
        found = directory.snapshot().vhosts
    print_rows([{"name": name} for name in found], ("name",), form)


@click.group(cls=Group)
def permission() -> None:
    """What users may do: regular expressions of the names they may configure, write and read."""


@permission.command("set")
@data_option
@click.option("--vhost", default="/", show_default=True)
@click.argument("name", metavar="USER")
@click.argument("configure")
@click.argument("write")
@click.argument("read")
def set_permission(
    data: Path, vhost: str, name: str, configure: str, write: str, read: str
) -> None:
    """Give USER permissions in a virtual host, such as `set ada "" "^orders" ".*"`.

    An expression matches anywhere in a name; an empty one matches nothing.
    """
    from headrace.gateway.security.access import check_permission
    from headrace.model.policy.accounts import Permission

    with open_directory(data) as directory:
        given = Permission(configure, write, read)
        check_permission(given)
        directory.set_permission(name, vhost, given)


@permission.command("clear")
@data_option
@click.option("--vhost", default="/", show_default=True)
@click.argument("name", metavar="USER")
def clear_permission(data: Path, vhost: str, name: str) -> None:
    """Take the permissions in a virtual host from USER."""
    with open_directory(data) as directory:
        directory.clear_permission(name, vhost)


@permission.command("list")
@data_option
@format_option
def list_permissions(data: Path, form: str | None) -> None:
    """Print user, virtual host, configure, write and read of each permission."""
    with open_directory(data) as directory:
        found = directory.snapshot().permissions
    columns = ("user", "vhost", "configure", "write", "read")
    fields = ((*key, given.configure, given.write, given.read) for key, given in found.items())
    print_rows([dict(zip(columns, row, strict=True)) for row in fields], columns, form)


@permission.group()
def topic() -> None:
    """Routing keys that users may publish and bind with at a topic exchange; without any, all."""


@topic.command("set")
@data_option
@click.option("--vhost", default="/", show_default=True)
@click.argument("name", metavar="USER")
@click.argument("exchange")
@click.argument("write")
@click.argument("read")
def set_topic_permission(
    data: Path, vhost: str, name: str, exchange: str, write: str, read: str
) -> None:
    """Restrict USER at EXCHANGE, such as `topic set ada amq.topic "^{username}[.]" ".*"`.

    In an expression, {username} and {vhost} stand for those names.
    """
    from headrace.gateway.security.access import check_topic_permission
    from headrace.model.policy.accounts import TopicPermission

    with open_directory(data) as directory:
        given = TopicPermission(write, read)
        check_topic_permission(given)
        directory.set_topic_permission(name, vhost, exchange, given)


@topic.command("clear")
@data_option
@click.option("--vhost", default="/", show_default=True)
@click.argument("name", metavar="USER")
@click.argument("exchange", required=False)
def clear_topic_permission(data: Path, vhost: str, name: str, exchange: str | None) -> None:
    """End the restriction of USER at EXCHANGE, or at all exchanges of a virtual host."""
    with open_directory(data) as directory:
        directory.clear_topic_permission(name, vhost, exchange)


@topic.command("list")
@data_option
@format_option
def list_topic_permissions(data: Path, form: str | None) -> None:
    """Print user, virtual host, exchange, write and read of each restriction."""
    with open_directory(data) as directory:
        found = directory.snapshot().topic_permissions
    columns = ("user", "vhost", "exchange", "write", "read")
    fields = ((*key, given.write, given.read) for key, given in found.items())
    print_rows([dict(zip(columns, row, strict=True)) for row in fields], columns, form)
