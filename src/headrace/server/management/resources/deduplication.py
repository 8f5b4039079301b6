# SPDX-License-Identifier: Apache-2.0
"""Deduplication: the message ids that queues and exchanges remember."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model.exchange.deduplication import CACHE_TTL, HEADER
from headrace.model.queue_kinds.deduplicating import DeduplicatingQueue
from headrace.server.config.json_values import as_json
from headrace.server.management.call import live_queues
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import LOOK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.management_rows import DeduplicationRow
    from headrace.model.exchange.deduplication import IdCache
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.management.call import Call, Steps

operation = OperationTable()


@operation("list deduplication", LOOK, reads=True, fields="`vhost`, `everywhere`")
def list_deduplication(call: Call) -> Steps:
    """List the queues and exchanges that drop messages with an id that they remember."""
    count = 0
    for vhost in call.vhosts():
        for queue in live_queues(vhost):
            row = None
            if isinstance(queue, DeduplicatingQueue):
                count += 1
                row = describe_cache(vhost, "queue", queue.name, queue.arguments, queue.cache())
                row["held"] = queue.id_count
                row["duplicates"] = queue.duplicates
            yield row
        for exchange in list(vhost.exchanges.values()):
            row = None
            if exchange.observer is not None and exchange.deduplicates:
                count += 1
                ids = exchange.observer.ids
                row = describe_cache(vhost, "exchange", exchange.name, exchange.arguments, ids)
            yield row
    return {"items": count}


def describe_cache(
    vhost: VirtualHost, kind: str, name: str, arguments: Mapping[str, object], ids: IdCache | None
) -> DeduplicationRow:
    """Return the cache of ids of a queue or exchange as a row of a list.

    The row of a queue also gets the ids of its messages, and its duplicates.
    """
    return {
        "kind": kind,
        "name": name,
        "vhost": vhost.name,
        "header": str(arguments.get(HEADER, HEADER)),
        "remembered": 0 if ids is None else len(ids),
        "remembered_max": 0 if ids is None else ids.size_max,
        "cache_ttl_ms": as_json(arguments.get(CACHE_TTL)),
        "held": 0,
        "duplicates": None,
    }
