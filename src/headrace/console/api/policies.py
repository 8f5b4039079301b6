# SPDX-License-Identifier: Apache-2.0
"""``/api/policies`` and ``/api/operator-policies``: listing, setting and removing policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.body import INTEGER, TABLE, Body, schema
from headrace.console.api.common.lookups import find_row, read_rows
from headrace.console.api.common.schemas import OBJECT, TEXT, record
from headrace.console.broker import lists
from headrace.console.http.answers import RowList, created_or_no_content
from headrace.console.http.routes import ACCESS, Routes
from headrace.user_tags import ADMINISTRATOR, MANAGEMENT, POLICYMAKER

if TYPE_CHECKING:
    from headrace.console.http.answers import Answer
    from headrace.console.http.call import HttpCall
    from headrace.management_operations import OperationName
    from headrace.untyped import JsonObject

# The kinds of policies in the broker's list.
POLICIES, OPERATOR_POLICIES = "policy", "operator"
POLICY = "/api/policies/{vhost}/{name}"
OPERATOR = "/api/operator-policies/{vhost}/{name}"
# The operations that set and remove the policies of a kind.
PUT: dict[str, OperationName] = {POLICIES: "put policy", OPERATOR_POLICIES: "put operator policy"}
DELETE: dict[str, OperationName] = {
    POLICIES: "delete policy",
    OPERATOR_POLICIES: "delete operator policy",
}
RULE = schema(
    ("pattern", "definition"),
    **{"pattern": TEXT, "definition": TABLE, "priority": INTEGER, "apply-to": TEXT},
)
POLICY_SCHEMA = record(
    name=TEXT,
    vhost=TEXT,
    pattern=TEXT,
    apply__to=TEXT,
    priority={"type": "integer"},
    definition=OBJECT,
)
ROUTES = Routes()


@ROUTES.get_list(
    {"/api/policies": "The policies.", "/api/policies/{vhost}": "The policies of a virtual host."},
    rows=POLICY_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_policies(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the policies of a virtual host, or of all that the user sees."""
    return RowList(await policies_of_kind(call, POLICIES, vhost))


@ROUTES.get_list(
    {
        "/api/operator-policies": "The operator policies.",
        "/api/operator-policies/{vhost}": "The operator policies of a virtual host.",
    },
    rows=POLICY_SCHEMA,
    tag=MANAGEMENT,
    permission=ACCESS,
)
async def list_operator_policies(call: HttpCall, vhost: str | None = None) -> RowList:
    """Return the operator policies of a virtual host, or of all that the user sees."""
    return RowList(await policies_of_kind(call, OPERATOR_POLICIES, vhost))


async def policies_of_kind(call: HttpCall, kind: str, vhost: str | None = None) -> list[JsonObject]:
    """Return the policies of a kind as RabbitMQ describes them."""
    rows = await read_rows(call, lists.POLICIES, vhost)
    return [
        {
            "vhost": row["vhost"],
            "name": row["name"],
            "pattern": row["pattern"],
            "apply-to": row["apply-to"],
            "definition": row["definition"],
            "priority": row["priority"],
        }
        for row in rows
        if row["kind"] == kind
    ]


@ROUTES.get({POLICY: "One policy."}, tag=MANAGEMENT, permission=ACCESS, answer=POLICY_SCHEMA)
async def show_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one policy."""
    return await policy_of_kind(call, POLICIES, vhost, name)


@ROUTES.get(
    {OPERATOR: "One operator policy."}, tag=MANAGEMENT, permission=ACCESS, answer=POLICY_SCHEMA
)
async def show_operator_policy(call: HttpCall, vhost: str, name: str) -> JsonObject:
    """Return one operator policy."""
    return await policy_of_kind(call, OPERATOR_POLICIES, vhost, name)


async def policy_of_kind(call: HttpCall, kind: str, vhost: str, name: str) -> JsonObject:
    """Return one policy of a kind."""
    return find_row(await policies_of_kind(call, kind, vhost), name=name)


@ROUTES.put({POLICY: "Set a policy."}, tag=POLICYMAKER, permission=ACCESS, body=RULE)
async def put_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set a policy."""
    return await put_policy_of_kind(call, POLICIES, vhost, name)


@ROUTES.delete({POLICY: "Remove a policy."}, tag=POLICYMAKER, permission=ACCESS)
async def remove_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove a policy."""
    await remove_policy_of_kind(call, POLICIES, vhost, name)


@ROUTES.put({OPERATOR: "Set an operator policy."}, tag=ADMINISTRATOR, body=RULE)
async def put_operator_policy(call: HttpCall, vhost: str, name: str) -> Answer:
    """Set an operator policy."""
    return await put_policy_of_kind(call, OPERATOR_POLICIES, vhost, name)


@ROUTES.delete({OPERATOR: "Remove an operator policy."}, tag=ADMINISTRATOR)
async def remove_operator_policy(call: HttpCall, vhost: str, name: str) -> None:
    """Remove an operator policy."""
    await remove_policy_of_kind(call, OPERATOR_POLICIES, vhost, name)


async def put_policy_of_kind(call: HttpCall, kind: str, vhost: str, name: str) -> Answer:
    """Set a policy of a kind."""
    body = await Body.read(call)
    is_new = await set_policy_of_kind(
        call,
        kind,
        vhost,
        name,
        pattern=body.text("pattern"),
        definition=body.table("definition"),
        priority=body.number("priority"),
        apply_to=body.text("apply-to"),
    )
    return created_or_no_content(is_new=is_new)


async def set_policy_of_kind(
    call: HttpCall,
    kind: str,
    vhost: str,
    name: str,
    *,
    pattern: str,
    definition: JsonObject,
    priority: int | None,
    apply_to: str,
) -> bool:
    """Set a policy of a kind; return False if it exists."""
    fields: JsonObject = {
        "pattern": pattern,
        "definition": definition,
        "priority": priority,
        "apply-to": apply_to or None,
    }
    done = await call.broker.ask(PUT[kind], vhost=vhost, name=name, **fields)
    return bool(done["created"])


async def remove_policy_of_kind(call: HttpCall, kind: str, vhost: str, name: str) -> None:
    """Remove a policy of a kind."""
    await call.broker.ask(DELETE[kind], vhost=vhost, name=name)
