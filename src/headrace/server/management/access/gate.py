# SPDX-License-Identifier: Apache-2.0
"""The check of an operation before it runs: tags, and the permissions on what the request names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.server.management.access.rules import RULES

if TYPE_CHECKING:
    from headrace.server.management.call import Call


def check(call: Call, what: str) -> None:
    """Refuse an operation that the user of a call may not run.

    Permissions are checked as for AMQP, by the same code.

    Raises:
        Refused: the user lacks a tag, or does not see the virtual host.
        AccessRefused: the user lacks a permission.
    """
    user = call.user
    if user is None:
        return
    rule = RULES.get(what)
    if rule is None:
        call.refuse("refused", f"operation '{what}' is not for users")
    if rule.tags.isdisjoint(user.tags):
        call.refuse(
            "refused", f"user '{user.name}' has none of the tags {', '.join(sorted(rule.tags))}"
        )
    if not rule.needs and not rule.own_vhost:
        return
    vhost = call.vhost()
    if rule.own_vhost and not call.administers and not user.may_open(vhost.name):
        call.refuse("refused", f"access to vhost '{vhost.name}' refused for user '{user.name}'")
    access = call.broker.access
    for need in rule.needs:
        kind = need.kind or call.text("kind", "queue")
        name = call.text(need.field, "")
        known = vhost.queues.get(name) if kind == "queue" else None
        access.check(user, vhost.name, need.permission, kind, known.access_name if known else name)
