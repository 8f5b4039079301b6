# SPDX-License-Identifier: Apache-2.0
"""``headrace policy``, ``operator-policy`` and ``limits``: rules that operators set at run time.

Like ``headrace user`` they change the data directory, whether or not a broker runs on it; a running
broker applies the changes within a second or two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from headrace.cli.admin.accounts import BY_DIRECTORY, NAME, VHOST, open_directory
from headrace.cli.commands import Group
from headrace.cli.data_option import data_option

if TYPE_CHECKING:
    from headrace.cli.output import Answer, Row
    from headrace.model.policy.parameters import Key
    from headrace.store.catalog.users import UserDirectory

Value = TypeVar("Value")

# Copied from the model, so that help imports no model; a test compares.
POLICY, OPERATOR_POLICY = "policy", "operator_policy"
APPLY_TO = ("all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges")
LIMITS = (
    *("max-connections", "max-channels", "max-queues", "max-message-rate", "max-message-size"),
    "max-definitions-size",
)


def check_parameter(component: str, name: str, value: Value) -> Value:
    """Return the value of a parameter, if it is valid.

    Raises:
        click.ClickException: the value is not valid.
    """
    from headrace.model.errors import InvalidArgument
    from headrace.model.policy.rules import check_parameter

    try:
        check_parameter(component, name, value)
    except InvalidArgument as error:
        raise click.ClickException(error.text) from None
    return value


def read_definition(text: str) -> object:
    """Return the JSON of a definition; `-` is standard input."""
    from headrace.exact_json import UnfitValue, read_json
    from headrace.model.policy.policy import DEFINITION_CHARACTERS_MAX as CHARACTERS_MAX

    if text == "-":
        text = sys.stdin.read(CHARACTERS_MAX + 1)
    if len(text) > CHARACTERS_MAX:
        raise click.ClickException(f"a definition may have at most {CHARACTERS_MAX} characters")
    try:
        return read_json(text)
    except UnfitValue as error:
        raise click.ClickException(f"the definition is refused: {error}") from None
    except ValueError as error:
        raise click.ClickException(f"the definition is not valid JSON: {error}") from None


def make_policy_group(component: str, title: str, words: str) -> click.Group:
    """Return the group of the commands ``set``, ``clear`` and ``list`` of one policy component."""
    group = Group(component.replace("_", "-"), help=words)

    @group.command("set", help=f"Set the {title} NAME.\n\nFor example: `{EXAMPLES[component]}`.")
    @data_option
    @VHOST
    @click.option(
        "--priority",
        type=int,
        default=0,
        show_default=True,
        help="Of the policies that match, the one with the highest priority applies.",
    )
    @click.option(
        "--apply-to",
        type=click.Choice(list(APPLY_TO)),
        default="all" if component == POLICY else "queues",
        show_default=True,
    )
    @NAME
    @click.argument("pattern")
    @click.argument("definition")
    def set_policy(
        data: Path,
        vhost: str,
        priority: int,
        apply_to: str,
        name: str,
        pattern: str,
        definition: str,
    ) -> None:
        from headrace.model.policy.accounts import AccountError
        from headrace.model.policy.policy import POLICIES_MAX

        value = {
            "pattern": pattern,
            "definition": read_definition(definition),
            "priority": priority,
            "apply-to": apply_to,
        }
        check_parameter(component, name, value)
        with open_directory(data) as directory:
            parameters = directory.parameters.all()
            other_count = sum(
                key[:2] == (vhost, component) and key.name != name for key in parameters
            )
            if other_count >= POLICIES_MAX:
                raise AccountError(
                    f"the virtual host has {other_count} of these already, which is the limit"
                )
            directory.parameters.set(vhost, component, name, value)

    def clear_policy(directory: UserDirectory, vhost: str, name: str) -> None:
        directory.parameters.clear(vhost, component, name)

    def list_policies(directory: UserDirectory, vhost: str | None) -> list[Answer]:
        rows: list[Answer] = [
            {"vhost": key.vhost, "name": key.name, **value}
            for key, value in directory.parameters.all().items()
            if key.component == component and vhost in (None, key.vhost)
        ]
        return sorted(rows, key=lambda row: (row["vhost"], -row.get("priority", 0), row["name"]))

    clear_policy.__doc__ = f"Remove the {title} NAME."
    list_policies.__doc__ = f"Print each {title}, by descending priority."
    only = click.option("--vhost", help="Only policies of this virtual host. [all]")
    BY_DIRECTORY.command(group, "clear")(VHOST(NAME(clear_policy)))
    BY_DIRECTORY.command(group, "list", columns=COLUMNS)(only(list_policies))
    return group


COLUMNS = ("vhost", "name", "pattern", "apply-to", "priority", "definition")
EXAMPLES = {
    POLICY: """set short '^orders' '{"max-length": 1000}' --apply-to queues""",
    OPERATOR_POLICY: """set guard '.*' '{"max-length-bytes": 1073741824}'""",
}
policy = make_policy_group(
    POLICY,
    "policy",
    "Settings for the queues and exchanges whose names match a pattern.",
)
operator_policy = make_policy_group(
    OPERATOR_POLICY,
    "operator policy",
    "Limits for the queues whose names match a pattern, which no policy can exceed.",
)


@click.group(cls=Group)
def limits() -> None:
    """Set, clear and list the limits of virtual hosts and users."""


def limits_key(vhost: str | None, user: str | None) -> Key:
    """Return the parameter that holds the limits of a virtual host or a user."""
    from headrace.model.policy.parameters import EVERYWHERE, Key
    from headrace.model.policy.rules import LIMITS_NAME, USER_LIMITS, VHOST_LIMITS

    if (vhost is None) == (user is None):
        raise click.UsageError("either --vhost or --user")
    if user is not None:
        return Key(EVERYWHERE, USER_LIMITS, user)
    assert vhost is not None
    return Key(vhost, VHOST_LIMITS, LIMITS_NAME)


@limits.command("set", context_settings={"ignore_unknown_options": True})  # Such as -1.
@data_option
@click.option("--vhost")
@click.option("--user")
@click.argument("limit", type=click.Choice(list(LIMITS)))
@click.argument("number", type=int)
def set_limit(data: Path, vhost: str | None, user: str | None, limit: str, number: int) -> None:
    """Set a limit of a virtual host or a user, such as `set --user ada max-connections 10`.

    Rates are in messages per second, sizes in bytes. A negative number means no limit. Existing
    objects above the limit stay.
    """
    from headrace.model.policy.accounts import AccountError

    key = limits_key(vhost, user)
    with open_directory(data) as directory:
        snapshot = directory.snapshot()
        if user is not None and user not in snapshot.accounts:
            raise AccountError(f"there is no user '{user}'")
        value = {**snapshot.parameters.get(key, {}), limit: number}
        directory.parameters.change({key: check_parameter(key.component, key.name, value)})


@limits.command("clear")
@data_option
@click.option("--vhost")
@click.option("--user")
@click.argument("limit", type=click.Choice(list(LIMITS)), required=False)
def clear_limit(data: Path, vhost: str | None, user: str | None, limit: str | None) -> None:
    """Remove a limit of a virtual host or a user, or all of them."""
    from headrace.model.policy.accounts import AccountError

    key = limits_key(vhost, user)
    with open_directory(data) as directory:
        value = dict(directory.parameters.all().get(key, {}))
        owner = f"virtual host '{vhost}'" if user is None else f"user '{user}'"
        if not value:
            raise AccountError(f"{owner} has no limits")
        if limit is not None and limit not in value:
            raise AccountError(f"{owner} has no limit '{limit}'")
        value.pop(limit, None)
        if value and limit is not None:
            directory.parameters.change({key: value})
        else:
            directory.parameters.clear(*key)


@BY_DIRECTORY.command(limits, "list", columns=("of", "name", *LIMITS))
def list_limits(directory: UserDirectory) -> list[Row]:
    """Print the limits of all virtual hosts and users that have some."""
    from headrace.model.policy.rules import USER_LIMITS, VHOST_LIMITS

    rows: list[Row] = []
    for key, value in directory.parameters.all().items():
        if key.component == VHOST_LIMITS:
            rows.append({"of": "vhost", "name": key.vhost, **value})
        elif key.component == USER_LIMITS:
            rows.append({"of": "user", "name": key.name, **value})
    return rows
