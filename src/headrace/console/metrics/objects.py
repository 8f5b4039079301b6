# SPDX-License-Identifier: Apache-2.0
"""``/metrics/per-object`` and ``/metrics/detailed``: metrics of each object, sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aiohttp.web_response import StreamResponse

from headrace.console.api.reads.clients import connection_names
from headrace.console.http.answers import Streamed
from headrace.console.http.errors import bad_request
from headrace.console.http.paging import matcher
from headrace.console.metrics import aggregated
from headrace.console.metrics.exposition import CONTENT_TYPE, head, label_text, pieces, several
from headrace.console.metrics.families import EMPTY, FAMILIES, OF_NODE, PER_OBJECT, Family
from headrace.console.state.sampling import CHANNEL, CONNECTION, EXCHANGE, LOGINS, QUEUE, VHOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.web_request import BaseRequest

    from headrace.console.http.call import HttpCall
    from headrace.console.metrics.exposition import Metric
    from headrace.console.state.state import State
    from headrace.console.state.table import Table

PREFIX, DETAILED, CLUSTER = "rabbitmq_", "rabbitmq_detailed_", "rabbitmq_cluster_"
PATTERN_MAX = 2000  # Characters of ``queue``: RabbitMQ's limit.
FAMILIES_MAX = 64  # Of a request.
VHOSTS_MAX = 1000
INFO = "queue_info"
Slots = Sequence[int]


async def per_object(call: HttpCall) -> object:
    """Return all metrics, those of objects one by one."""
    await call.state.refresh()
    first = await aggregated.text(call, "per-object", apart=True)
    found = Objects(call.state, PREFIX, await connection_names(call), None, None)
    return streamed(first, found.text((*PER_OBJECT, INFO)))


async def detailed(call: HttpCall) -> object:
    """Return the families that the query names, of the virtual hosts and queues that it names."""
    query = call.request.query
    names = query.getall("family", [])
    vhosts = query.getall("vhost", [])
    if len(names) > FAMILIES_MAX or len(vhosts) > VHOSTS_MAX:
        raise bad_request(f"{FAMILIES_MAX} families and {VHOSTS_MAX} virtual hosts at most")
    patterns = query.getall("queue", [])
    if len(patterns) > 1:
        raise bad_request("'queue' is one pattern")
    fits = matcher(patterns[0], True, ignore_case=False, most=PATTERN_MAX) if patterns else None
    await call.state.refresh()
    first = await aggregated.header(call, "detailed")
    if any(name in OF_NODE for name in names):
        first += await aggregated.of_node(call, DETAILED)
    wanted = [name for name in dict.fromkeys(names) if name in FAMILIES]
    if any(name.startswith("queue_") for name in names if name not in EMPTY):
        wanted.append(INFO)
    some = set(vhosts) or None
    found = Objects(call.state, DETAILED, await connection_names(call), some, fits)
    return streamed(first, found.text(wanted))


def streamed(first: str, rest: Iterator[str]) -> Streamed:
    """Return an answer that begins at once; others are served between its pieces."""

    async def send(request: BaseRequest) -> StreamResponse:
        response = StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(first.encode())
            for piece in rest:
                await response.write(piece.encode())
                await asyncio.sleep(0)
        await response.write_eof()
        return response

    return Streamed(send)


class Objects:
    """Tells the metrics of objects, as of the last sample."""

    def __init__(
        self,
        kinds: State,
        prefix: str,
        names: dict[int, dict[str, object]],
        vhosts: set[str] | None,
        fits: Callable[[str], bool] | None,
    ) -> None:
        """``names`` are those of connections; ``vhosts`` and ``fits`` limit what is told."""
        self._prefix = prefix
        self._names = names
        self._vhosts = vhosts
        self._fits = fits
        self._tables: dict[str, Table] = {
            QUEUE: kinds.queues.table,
            EXCHANGE: kinds.exchanges.table,
            CHANNEL: kinds.channels.table,
            CONNECTION: kinds.connections.table,
            LOGINS: kinds.logins.table,
            VHOST: kinds.vhosts.table,
        }
        self._labels: dict[tuple[str, tuple[str, ...]], list[str]] = {}

    def text(self, families: Sequence[str]) -> Iterator[str]:
        """Yield the text of families.

        All is of one sample: the next one may come between two pieces, and give slots to others.
        """
        wanted = [(name, FAMILIES[name]) for name in families if name != INFO]
        known = [(family, self._slots(name, family)) for name, family in wanted]
        found = [(family, slots, self._labelled(family, slots)) for family, slots in known if slots]
        totals = {
            (family.kind, metric.columns): self._tables[family.kind].totals(metric.columns)[:]
            for family, _, _ in found
            for metric in family.metrics
        }
        info = list(self._info()) if INFO in families else []
        for family, slots, labels in found:
            for metric in family.metrics:
                told = (CLUSTER if family.cluster else self._prefix) + metric.name
                yield head(told, metric.kind, metric.about)
                values = scaled(metric, totals[family.kind, metric.columns], slots)
                yield from pieces(told, labels, values)
        yield from info

    def _slots(self, name: str, family: Family) -> Slots:
        """Return the objects that are told."""
        table = self._tables[family.kind]
        slots: Slots = table.ordered()
        if family.kind == LOGINS:
            is_detailed = name == "auth_attempt_detailed_metrics"
            return [slot for slot in slots if bool(table.text("user", slot)) is is_detailed]
        if self._vhosts is not None:
            field = "name" if family.kind == VHOST else "vhost"
            slots = [slot for slot in slots if table.text(field, slot) in self._vhosts]
        if self._fits is not None and family.kind == QUEUE:
            slots = [slot for slot in slots if self._fits(table.text("name", slot))]
        return slots

    def _labelled(self, family: Family, slots: Slots) -> list[str]:
        """Return the labels of objects as text; families of a kind share them."""
        key = (family.kind, tuple(family.labels))
        if family.kind != LOGINS and key in self._labels:
            return self._labels[key]
        table = self._tables[family.kind]
        found = self._labels[key] = [
            label_text(
                {label: self._named(table, field, slot) for label, field in family.labels.items()}
            )
            for slot in slots
        ]
        return found

    def _named(self, table: Table, field: str, slot: int) -> str:
        """Return the value of a label; connections and channels have the name of the API."""
        if field not in ("connection", "channel"):
            return table.text(field, slot)
        of = "number" if field == "connection" else "connection"
        known = self._names.get(int(str(table.field(of, slot))), {})
        name = str(known.get("name", ""))
        return name if field == "connection" else f"{name} ({table.field('number', slot)})"

    def _info(self) -> Iterator[str]:
        table = self._tables[QUEUE]
        slots = self._slots(INFO, FAMILIES["queue_coarse_metrics"])
        yield several(
            f"{self._prefix}{INFO}",
            "gauge",
            "What a queue is",
            (
                (
                    {
                        "vhost": table.text("vhost", slot),
                        "queue": table.text("name", slot),
                        "queue_type": f"rabbit_{table.text('type', slot)}_queue",
                        "membership": "leader",
                    },
                    1,
                )
                for slot in slots
            ),
        )


def scaled(metric: Metric, totals: Sequence[float], slots: Slots) -> Sequence[float]:
    """Return the values of a metric; 1 for one that only tells labels."""
    if not metric.columns:
        return [1] * len(slots)
    if metric.scale != 1:
        return [totals[slot] * metric.scale for slot in slots]
    return [totals[slot] for slot in slots]
