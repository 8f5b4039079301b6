# SPDX-License-Identifier: Apache-2.0
"""The definitions of policies, as queues tell them beside the names of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.console.state.table import SampledObject, Table
    from headrace.untyped import JsonObject


class Policies:
    """The policies and operator policies of all virtual hosts."""

    def __init__(self, rows: list[JsonObject]) -> None:
        """``rows`` are those of the operation ``list policies``."""
        self._known: dict[tuple[str, str, str], JsonObject] = {
            (row["vhost"], row["kind"], row["name"]): row["definition"] for row in rows
        }

    def __bool__(self) -> bool:
        return bool(self._known)

    def of(self, queue: SampledObject) -> JsonObject:
        """Return what the policies of a queue define together."""
        vhost = queue.text("vhost")
        policy = self._known.get((vhost, "policy", queue.text("policy")), {})
        operator = self._known.get((vhost, "operator", queue.text("operator_policy")), {})
        return together(policy, operator) if operator else policy


NO_POLICIES = Policies([])


def together(policy: JsonObject, operator: JsonObject) -> JsonObject:
    """Return both: the smaller of two limits, and the operator's value of anything else."""
    definition = {**policy, **operator}
    for name in policy.keys() & operator.keys():
        value, limit = policy[name], operator[name]
        if isinstance(value, int) and isinstance(limit, int):
            definition[name] = min(value, limit)
    return definition


async def policies_of(call: HttpCall, table: Table) -> Policies:
    """Return the policies, where an object of a kind has one."""
    fields = table.fields
    if not any(any(fields.get(name, ())) for name in ("policy", "operator_policy")):
        return NO_POLICIES
    return Policies(await call.state.policies())
