# SPDX-License-Identifier: Apache-2.0
"""Requests about publishers that number their messages."""

from datetime import UTC, datetime

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall
from headrace.model.vhost.publishing_ids import NAME_MAX

LISTED_MAX = 1000  # Publishers in one answer.


def publisher_last(call: RequestCall) -> RequestAnswer:
    """Return the highest publishing id of a publisher; -1 if it has none."""
    name = call.text("name", bytes_max=NAME_MAX)
    return {"name": name, "last": call.vhost.publishing_ids.highest(name.encode())}


def publisher_list(call: RequestCall) -> RequestAnswer:
    """Return a page of publishers in order, from the name ``after`` on."""
    after = call.text("after", "", bytes_max=NAME_MAX).encode()
    publishers: list[RequestAnswer] = []
    for name, last, used_ms in call.vhost.publishing_ids.items():
        if name <= after and after:
            continue
        if len(publishers) == LISTED_MAX:
            return {"publishers": publishers, "more": True}
        used = datetime.fromtimestamp(used_ms / 1000, UTC).isoformat() if used_ms else None
        publishers.append({"name": name.decode("utf-8", "replace"), "last": last, "used": used})
    return {"publishers": publishers, "more": False}


def publisher_forget(call: RequestCall) -> RequestAnswer:
    """Forget a publisher, so that its ids may be used again."""
    name = call.text("name", bytes_max=NAME_MAX)
    call.allow("configure", name)
    return {"forgotten": call.vhost.publishing_ids.remove(name.encode())}


HANDLERS: dict[str, Handler] = {
    "publisher.last": publisher_last,
    "publisher.list": publisher_list,
    "publisher.forget": publisher_forget,
}
