# SPDX-License-Identifier: Apache-2.0
"""``/api/auth/attempts``: the broker's counts of logins, by protocol, address and user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api.common.node import check_node
from headrace.console.api.common.schemas import TEXT, WHOLE, record
from headrace.console.http.answers import RowList
from headrace.console.http.routes import Routes
from headrace.console.http_errors import HttpError
from headrace.user_tags import ADMINISTRATOR, MONITORING

if TYPE_CHECKING:
    from headrace.console.http.call import HttpCall
    from headrace.untyped import JsonObject

#: RabbitMQ's names of protocols, for clients with strict decoders. RabbitMQ counts 0-8 and 0-9 as
#: 0-9-1, and lacks 0-10.
PROTOCOLS = {"0-8": "amqp091", "0-9": "amqp091", "0-9-1": "amqp091", "0-10": "amqp"}
ATTEMPTS = "/api/auth/attempts/{node}"
BY_SOURCE = f"{ATTEMPTS}/source"
ATTEMPTS_SCHEMA = record(
    protocol=TEXT,
    remote_address=TEXT,
    username=TEXT,
    auth_attempts=WHOLE,
    auth_attempts_failed=WHOLE,
    auth_attempts_succeeded=WHOLE,
)
ROUTES = Routes()


@ROUTES.get_list({ATTEMPTS: "The logins by protocol."}, rows=ATTEMPTS_SCHEMA, tag=MONITORING)
async def list_attempts(call: HttpCall, node: str) -> RowList:
    """Return the logins by protocol since the broker was started."""
    rows = await attempt_rows(call, node)
    return RowList([row for row in rows if not row["remote_address"]], ())


@ROUTES.get_list(
    {BY_SOURCE: "The logins of the last 1,000 sources, by protocol, address and user."},
    rows=ATTEMPTS_SCHEMA,
    tag=MONITORING,
)
async def list_attempts_by_source(call: HttpCall, node: str) -> RowList:
    """Return the logins of the last 1,000 sources, by protocol, address and user."""
    rows = await attempt_rows(call, node)
    return RowList([row for row in rows if row["remote_address"]], ())


async def attempt_rows(call: HttpCall, node: str) -> list[JsonObject]:
    """Return the logins as RabbitMQ describes them."""
    check_node(node)
    sums: dict[tuple[str, str, str], tuple[int, int]] = {}
    for attempt in await call.state.logins.all():
        protocol = PROTOCOLS.get(attempt.text("protocol"), attempt.text("protocol"))
        source = attempt.text("host"), attempt.text("user"), protocol
        succeeded, failed = sums.get(source, (0, 0))
        sums[source] = succeeded + attempt.number("succeeded"), failed + attempt.number("failed")
    return [
        {
            "remote_address": host,
            "username": user,
            "protocol": protocol,
            "auth_attempts": succeeded + failed,
            "auth_attempts_failed": failed,
            "auth_attempts_succeeded": succeeded,
        }
        for (host, user, protocol), (succeeded, failed) in sums.items()
    ]


@ROUTES.delete(dict.fromkeys((ATTEMPTS, BY_SOURCE), "405: never reset."), tag=ADMINISTRATOR)
async def refuse_reset(call: HttpCall, node: str) -> None:
    """Refuse to reset the counts of logins."""
    raise HttpError(405, "attempts to log in are counted while the broker runs, and never reset")
