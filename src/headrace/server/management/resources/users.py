# SPDX-License-Identifier: Apache-2.0
"""Operations on users, permissions and virtual hosts.

What is set is checked by the plan of an import of definitions, of one element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.gateway.security.passwords import NO_PASSWORD, make_account
from headrace.model.policy.accounts import check_name
from headrace.model.policy.rules import metadata_key
from headrace.server.definitions.elements import Element, read_account
from headrace.server.definitions.export import hash_fields
from headrace.server.definitions.outcomes import MADE, NO_EQUIVALENT
from headrace.server.definitions.plan import Plan
from headrace.server.management.fields import fields_of
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import running
from headrace.store.catalog.changes import Changes
from headrace.user_tags import ADMINISTER, LOOK

if TYPE_CHECKING:
    from headrace.server.management.call import Answered, Call, Steps
    from headrace.store.catalog.users import UserDirectory

operation = OperationTable()

PASSWORD_OCTETS_MAX = 65536
VHOST_FIELDS = (
    *("description", "tags", "default_queue_type", "unknown_arguments"),
    "protected_from_deletion",
)
ALL_PERMISSIONS = dict.fromkeys(("configure", "write", "read"), ".*")


async def put(call: Call, section: str, value: dict[str, object]) -> bool:
    """Set one element of a section of definitions; return True if it is new.

    Raises:
        DocumentError: the value is wrong.
        Refused: this broker has no equivalent.
        AccountError: it could not be written.
    """
    plan = Plan(running(call), exact=True)
    finding = plan.add(section, 0, value)
    if finding.outcome == NO_EQUIVALENT:
        call.refuse("precondition", finding.text)
    if plan.changes:
        await call.broker.accounts.change(plan.changes, call.actor)
    return finding.outcome == MADE


# --- Users ----------------------------------------------------------------------------------------


@operation(
    "put user",
    ADMINISTER,
    fields="`name`, `tags`, `password`, or `password_hash` and `hashing_algorithm`, "
    "or `keep_password`",
)
async def put_user(call: Call) -> Answered:
    """Add or change a user.

    With ``password``, or ``password_hash`` and ``hashing_algorithm``, these are set; with
    ``keep_password`` those of before stay. Without any the user cannot log in with a password.
    """
    request = {name: value for name, value in call.request.items() if name != "password"}
    given = read_account(Element("users", 0, request, None))
    check_name("user", given.name)
    known = call.broker.access.account(given.name)
    password = call.text("password", "", octets_max=PASSWORD_OCTETS_MAX)
    if password and given.password_hash != NO_PASSWORD:
        call.refuse("bad-request", "'password' and 'password_hash' exclude each other")
    if call.flag("keep_password"):
        if known is None:
            call.refuse("not-found", f"there is no user '{given.name}'")
        given = replace(known, tags=given.tags)

    def change(users: UserDirectory) -> None:
        account = make_account(given.name, password, given.tags) if password else given
        users.change(Changes(accounts={account.name: account}))

    await call.broker.accounts.perform(change, call.actor)
    return {"created": known is None}


@operation("delete user", ADMINISTER, fields="`name`")
async def delete_user(call: Call) -> Answered:
    """Delete a user; its connections are closed."""
    name = call.text("name")
    if call.broker.access.account(name) is None:
        call.refuse("not-found", f"there is no user '{name}'")
    await call.broker.accounts.perform(lambda users: users.delete_user(name), call.actor)
    return {}


@operation("show user", ADMINISTER, fields="`name`")
def show_user(call: Call) -> Answered:
    """Return a user with the hash of its password, as an export of definitions does."""
    name = call.text("name")
    account = call.broker.access.account(name)
    if account is None:
        call.refuse("not-found", f"there is no user '{name}'")
    return {"name": name, "tags": list(account.tags), **hash_fields(account, False)}


# --- Permissions ----------------------------------------------------------------------------------


@operation("put permission", ADMINISTER, fields="`vhost`, `user`, `configure`, `write`, `read`")
async def put_permission(call: Call) -> Answered:
    """Set the permissions of a user in a virtual host."""
    value = {**fields_of(call, "configure", "write", "read"), "user": known_user(call)}
    return {"created": await put(call, "permissions", {**value, "vhost": known_vhost(call)})}


@operation("delete permission", ADMINISTER, fields="`vhost`, `user`")
async def delete_permission(call: Call) -> Answered:
    """Remove the permissions of a user in a virtual host."""
    user, vhost = call.text("user"), known_vhost(call)
    if (user, vhost) not in call.broker.access.snapshot.permissions:
        text = f"user '{user}' has no permissions in virtual host '{vhost}'"
        call.refuse("not-found", text)
    accounts = call.broker.accounts
    await accounts.perform(lambda users: users.clear_permission(user, vhost), call.actor)
    return {}


@operation(
    "put topic permission", ADMINISTER, fields="`vhost`, `user`, `exchange`, `write`, `read`"
)
async def put_topic_permission(call: Call) -> Answered:
    """Restrict the routing keys of a user at a topic exchange."""
    value = {**fields_of(call, "exchange", "write", "read"), "user": known_user(call)}
    return {"created": await put(call, "topic_permissions", {**value, "vhost": known_vhost(call)})}


@operation("delete topic permission", ADMINISTER, fields="`vhost`, `user`, `exchange`")
async def delete_topic_permission(call: Call) -> Answered:
    """Remove such a restriction; without ``exchange`` all in the virtual host."""
    user, vhost = call.text("user"), known_vhost(call)
    exchange = None if call.request.get("exchange") is None else call.text("exchange", "")
    known = call.broker.access.snapshot.topic_permissions
    if not any(key[:2] == (user, vhost) and exchange in (None, key[2]) for key in known):
        text = f"user '{user}' has no topic permissions there in virtual host '{vhost}'"
        call.refuse("not-found", text)
    await call.broker.accounts.perform(
        lambda users: users.clear_topic_permission(user, vhost, exchange), call.actor
    )
    return {}


@operation("list topic permissions", LOOK, fields="`vhost`, `user`")
def list_topic_permissions(call: Call) -> Steps:
    """List the topic permissions; users see their own, administrators all."""
    vhost, wanted = call.text("vhost", ""), call.text("user", "")
    count = 0
    known = call.broker.access.snapshot.topic_permissions
    for (user, where, exchange), given in list(known.items()):
        shown = call.administers or (call.user is not None and call.user.name == user)
        if not shown or (vhost and vhost != where) or (wanted and wanted != user):
            yield None
            continue
        count += 1
        yield {
            "user": user,
            "vhost": where,
            "exchange": exchange,
            "write": given.write,
            "read": given.read,
        }
    return {"items": count}


def known_user(call: Call) -> str:
    """Return the name of the user of a request, who has an account."""
    name = call.text("user")
    if call.broker.access.account(name) is None:
        call.refuse("not-found", f"there is no user '{name}'")
    return name


def known_vhost(call: Call) -> str:
    """Return the name of the virtual host of a request, which exists, running or not."""
    name = call.text("vhost", call.broker.settings.default_vhost)
    if name not in call.broker.access.snapshot.vhosts:
        call.refuse("not-found", f"there is no virtual host '{name}'")
    return name


# --- Virtual hosts --------------------------------------------------------------------------------


@operation(
    "put vhost",
    ADMINISTER,
    fields="`name`, `description`, `tags`, `default_queue_type`, `unknown_arguments`, `tracing`, "
    "`protected_from_deletion`",
    note="a user who adds one gets all permissions in it",
)
async def put_vhost(call: Call) -> Answered:
    """Add or change a virtual host; ``tracing`` switches tracing.

    The user who adds one gets all permissions in it, as with RabbitMQ.
    """
    name = call.text("name")
    check_name("virtual host", name)
    tracing = call.flag("tracing") if "tracing" in call.request else None
    metadata = fields_of(call, *VHOST_FIELDS)
    is_new = await put(call, "vhosts", {"name": name, "metadata": metadata})
    if is_new and call.user is not None and call.broker.access.account(call.user.name) is not None:
        rights: dict[str, object] = {"user": call.user.name, "vhost": name, **ALL_PERMISSIONS}
        await put(call, "permissions", rights)
    vhost = call.broker.vhosts.get(name)
    if tracing is not None and vhost is not None:
        with call.acting():
            if tracing:
                call.broker.trace(vhost)
            else:
                vhost.trace_no_more()
    return {"created": is_new}


@operation("delete vhost", ADMINISTER, fields="`name`")
async def delete_vhost(call: Call) -> Answered:
    """Delete a virtual host with everything in it, unless it is protected."""
    name = call.text("name")
    snapshot = call.broker.access.snapshot
    if name not in snapshot.vhosts:
        call.refuse("not-found", f"there is no virtual host '{name}'")
    if snapshot.parameters.get(metadata_key(name), {}).get("protected_from_deletion"):
        call.refuse("precondition", f"virtual host '{name}' is protected from deletion")
    await call.broker.accounts.perform(lambda users: users.delete_vhost(name), call.actor)
    return {}
