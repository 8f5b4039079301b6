# SPDX-License-Identifier: Apache-2.0
"""Users with an account, who log in by a password."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.gateway.security.passwords import NO_PASSWORD, make_account
from headrace.model.policy.accounts import check_name
from headrace.server.definitions.elements import Element, read_account
from headrace.server.definitions.export import hash_fields
from headrace.server.management.operation_table import OperationTable
from headrace.store.catalog.changes import Changes
from headrace.user_tags import ADMINISTER

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Account
    from headrace.server.management.call import Call, JsonLine, Steps
    from headrace.store.catalog.users import UserDirectory

operation = OperationTable()

PASSWORD_BYTES_MAX = 65536


@operation("list users", ADMINISTER, reads=True, fields="`hashes`")
def list_users(call: Call) -> Steps:
    """List the users with an account; with ``hashes``, also the hashes of their passwords."""
    hashes = call.flag("hashes")
    accounts = call.broker.access.snapshot.accounts
    connections: dict[str, int] = {}
    for transport in list(call.broker.transports):
        if transport.connection.user is not None:
            name = transport.connection.user.name
            connections[name] = connections.get(name, 0) + 1
        yield None
    for account in list(accounts.values()):
        yield {
            "name": account.name,
            "tags": " ".join(account.tags),
            "connections": connections.get(account.name, 0),
            **(hash_fields(account, False) if hashes else {}),
        }
    return {"items": len(accounts)}


@operation(
    "put user",
    ADMINISTER,
    fields="`name`, `tags`, `password`, or `password_hash` and `hashing_algorithm`, "
    "or `keep_password`",
)
async def put_user(call: Call) -> JsonLine:
    """Add or change a user.

    The new password is ``password``, or that of ``password_hash`` and ``hashing_algorithm``. With
    ``keep_password`` the user keeps its password. Without any of these fields it cannot log in by a
    password.
    """
    request = {name: value for name, value in call.request.items() if name != "password"}
    new_account = read_account(Element("users", 0, request, None))
    check_name("user", new_account.name)
    is_new = call.broker.access.account(new_account.name) is None
    password = call.text("password", "", size_max=PASSWORD_BYTES_MAX)
    if password and new_account.password_hash != NO_PASSWORD:
        call.refuse("bad-request", "'password' and 'password_hash' exclude each other")
    if call.flag("keep_password"):
        new_account = replace(get_account(call, new_account.name), tags=new_account.tags)

    def change(users: UserDirectory) -> None:
        name, tags = new_account.name, new_account.tags
        account = make_account(name, password, tags) if password else new_account
        users.change(Changes(accounts={account.name: account}))

    await call.broker.accounts.perform(change, call.actor)
    return {"created": is_new}


@operation("delete user", ADMINISTER, fields="`name`")
async def delete_user(call: Call) -> JsonLine:
    """Delete a user, and close its connections."""
    name = get_account(call, call.text("name")).name
    await call.broker.accounts.perform(lambda users: users.delete_user(name), call.actor)
    return {}


@operation("show user", ADMINISTER, reads=True, fields="`name`")
def show_user(call: Call) -> JsonLine:
    """Return a user with the hash of its password, in the format of definitions."""
    account = get_account(call, call.text("name"))
    return {"name": account.name, "tags": list(account.tags), **hash_fields(account, False)}


def get_account(call: Call, name: str) -> Account:
    """Return the account of a user, or refuse the request if there is none."""
    account = call.broker.access.account(name)
    if account is None:
        call.refuse("not-found", f"there is no user '{name}'")
    return account


def read_user_name(call: Call) -> str:
    """Return the name in ``user``, or refuse the request if there is no such account."""
    return get_account(call, call.text("user")).name
