# SPDX-License-Identifier: Apache-2.0
"""The field ``effective_policy_definition`` of queues: the merged definitions of their policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject, Table
    from headrace.management_rows import PolicyRow
    from headrace.untyped import JsonObject


class Policies:
    """The policies and operator policies of all virtual hosts."""

    def __init__(self, rows: list[PolicyRow]) -> None:
        """``rows`` are the rows of the operation ``list policies``."""
        self._definitions: dict[tuple[str, str, str], JsonObject] = {
            (row["vhost"], row["kind"], row["name"]): row["definition"] for row in rows
        }

    def __bool__(self) -> bool:
        return bool(self._definitions)

    def merge(self, queue: SampledObject) -> JsonObject:
        """Return the definitions that apply to a queue, merged."""
        vhost = queue.text("vhost")
        policy = self._definitions.get((vhost, "policy", queue.text("policy")), {})
        operator = self._definitions.get((vhost, "operator", queue.text("operator_policy")), {})
        return merge_definitions(policy, operator) if operator else policy


NO_POLICIES = Policies([])


def merge_definitions(policy: JsonObject, operator: JsonObject) -> JsonObject:
    """Merge two definitions: of two numbers the smaller one counts, else the operator's value."""
    definition = {**policy, **operator}
    for name in policy.keys() & operator.keys():
        value, limit = policy[name], operator[name]
        if isinstance(value, int) and isinstance(limit, int):
            definition[name] = min(value, limit)
    return definition


async def read_policies(call: HttpCall, table: Table) -> Policies:
    """Return the policies of all virtual hosts; none if no object of the table has a policy."""
    fields = table.fields
    if not any(any(fields.get(name, ())) for name in ("policy", "operator_policy")):
        return NO_POLICIES
    return Policies(await call.state.policies())
