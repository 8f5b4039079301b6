# SPDX-License-Identifier: Apache-2.0
"""Policies, and operator policies, which no policy can exceed.

:mod:`headrace.model.policy.policy` checks and orders them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.policy.parameters import Key
from headrace.model.policy.policy import COMPONENT, OPERATOR_COMPONENT
from headrace.server.management.fields import read_fields
from headrace.server.management.operation_table import OperationTable
from headrace.server.management.resources.definitions import put_element
from headrace.server.management.resources.parameters import clear_parameter
from headrace.server.management.resources.vhosts import read_vhost_name
from headrace.user_tags import ADMINISTER, LOOK, POLICY

if TYPE_CHECKING:
    from headrace.management_rows import PolicyRow
    from headrace.server.management.call import Call, JsonLine, Steps

operation = OperationTable()


@operation("list policies", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_policies(call: Call) -> Steps:
    """List the policies and operator policies that apply now, by descending priority.

    The rows are those of `headrace policy list`, which reads the data directory.
    """
    count = 0
    for vhost in call.vhosts():
        policies = vhost.rules.policies
        kinds = zip(
            ("policy", "operator"),
            (policies.policies, policies.operator),
            policies.values,
            strict=True,
        )
        for kind, by_priority, values in kinds:
            for policy in by_priority:
                count += 1
                value = values[policy.name]
                row: PolicyRow = {
                    "vhost": vhost.name,
                    "kind": kind,
                    "name": policy.name,
                    "pattern": policy.pattern.text,
                    "apply-to": value.get("apply-to", "all"),
                    "priority": policy.priority,
                    "definition": value["definition"],
                }
                yield row
    return {"items": count}


@operation(
    "put policy",
    POLICY,
    own_vhost=True,
    fields="`vhost`, `name`, `pattern`, `definition`, `priority`, `apply-to`",
)
async def put_policy(call: Call) -> JsonLine:
    """Set a policy."""
    value = read_fields(call, "name", "pattern", "definition", "priority", "apply-to")
    return {
        "created": await put_element(call, "policies", {**value, "vhost": read_vhost_name(call)})
    }


@operation("put operator policy", ADMINISTER, fields="as `put policy`")
async def put_operator_policy(call: Call) -> JsonLine:
    """Set an operator policy, which no policy can exceed."""
    value = read_fields(call, "pattern", "definition", "priority", "apply-to")
    element: dict[str, object] = {
        "vhost": read_vhost_name(call),
        "component": OPERATOR_COMPONENT,
        "name": call.text("name"),
        "value": value,
    }
    return {"created": await put_element(call, "parameters", element)}


@operation("delete policy", POLICY, own_vhost=True, fields="`vhost`, `name`")
async def delete_policy(call: Call) -> JsonLine:
    """Remove a policy."""
    return await clear_parameter(call, Key(read_vhost_name(call), COMPONENT, call.text("name")))


@operation("delete operator policy", ADMINISTER, fields="`vhost`, `name`")
async def delete_operator_policy(call: Call) -> JsonLine:
    """Remove an operator policy."""
    return await clear_parameter(
        call, Key(read_vhost_name(call), OPERATOR_COMPONENT, call.text("name"))
    )
