# SPDX-License-Identifier: Apache-2.0
"""``/metrics/per-object`` and ``/metrics/detailed``: metrics of each object, sent in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aiohttp.web_response import StreamResponse

from headrace.console.api.connections import read_connection_fields
from headrace.console.http.answers import StreamedAnswer
from headrace.console.http.name_filter import compile_name_test, match_names
from headrace.console.http.routes import NOBODY, Parameter, Routes
from headrace.console.http_errors import bad_request
from headrace.console.metrics import aggregated
from headrace.console.metrics.exposition import (
    CONTENT_TYPE,
    Labels,
    Metric,
    format_head,
    format_in_pieces,
)
from headrace.console.metrics.families import FAMILIES, OF_NODE, PER_OBJECT, Family
from headrace.measures import CHANNEL, CONNECTION, EXCHANGE, GAUGE, LOGINS, QUEUE, VHOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.web_request import BaseRequest

    from headrace.console.http.call import HttpCall
    from headrace.console.state.broker_mirror import BrokerMirror
    from headrace.console.state.table import Table

PREFIX, DETAILED, CLUSTER = "rabbitmq_", "rabbitmq_detailed_", "rabbitmq_cluster_"
PATTERN_MAX = 2000  # Characters of ``queue``: RabbitMQ's limit.
FAMILIES_MAX = 64  # Families that one request may name.
VHOSTS_MAX = 1000
INFO = "queue_info"
COMPUTED = frozenset(("connection", "channel", "queue_type", "membership"))
QUEUE_INFO = Family(
    QUEUE,
    {"vhost": "vhost", "queue": "name", "queue_type": "queue_type", "membership": "membership"},
    (Metric(INFO, GAUGE, "What a queue is"),),
)
QUERY = (
    Parameter("family", "A family of metrics; repeat it for several."),
    Parameter("vhost", "Only objects of this virtual host; repeat it for several."),
    Parameter("queue", "Only queues whose name matches this pattern of RE2."),
)
ROUTES = Routes()
Slots = Sequence[int]


@ROUTES.get({"/metrics/per-object": "All metrics, those of objects object by object."}, tag=NOBODY)
async def show_per_object(call: HttpCall) -> StreamedAnswer:
    """Return the metrics of the broker, and the metrics of each object."""
    await call.state.refresh()
    begin = await aggregated.broker_metrics(call, "per-object", with_objects=False)
    objects = ObjectMetrics(call.state, PREFIX, await read_connection_fields(call), None, None)
    return stream_text(begin, objects.text((*PER_OBJECT, INFO)))


@ROUTES.get({"/metrics/detailed": "The families that the query names."}, tag=NOBODY, query=QUERY)
async def show_detailed(call: HttpCall) -> StreamedAnswer:
    """Return the families in the query, limited to its virtual hosts and to matching queues."""
    query = call.request.query
    names = query.getall("family", [])
    vhosts = query.getall("vhost", [])
    if len(names) > FAMILIES_MAX or len(vhosts) > VHOSTS_MAX:
        raise bad_request(f"{FAMILIES_MAX} families and {VHOSTS_MAX} virtual hosts at most")
    patterns = query.getall("queue", [])
    if len(patterns) > 1:
        raise bad_request("'queue' is one pattern")
    pattern = None
    if patterns:
        pattern = compile_name_test(
            patterns[0], True, ignore_case=False, size_max=PATTERN_MAX, parameter="queue"
        )
    await call.state.refresh()
    begin = await aggregated.identity_metrics(call, "detailed")
    if any(name in OF_NODE for name in names):
        begin += await aggregated.node_metrics(call, DETAILED)
    families = [name for name in dict.fromkeys(names) if name in FAMILIES]
    if any(FAMILIES[name].kind == QUEUE for name in families):
        families.append(INFO)
    fits = None
    if pattern is not None:
        queues = call.state.queues.table
        queue_names = [queues.text("name", slot) for slot in queues.own_slots()]
        fits = (await match_names(queue_names, pattern)).__contains__
    connections = await read_connection_fields(call)
    objects = ObjectMetrics(call.state, DETAILED, connections, set(vhosts) or None, fits)
    return stream_text(begin, objects.text(families))


def stream_text(begin: str, chunks: Iterator[str]) -> StreamedAnswer:
    """Return an answer in pieces; other requests are served between them."""

    async def send(request: BaseRequest) -> StreamResponse:
        response = StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(begin.encode())
            for chunk in chunks:
                await response.write(chunk.encode())
                await asyncio.sleep(0)
        await response.write_eof()
        return response

    return StreamedAnswer(send)


class ObjectMetrics:
    """The metrics of objects as of the last sample."""

    def __init__(
        self,
        mirror: BrokerMirror,
        prefix: str,
        connections: dict[int, dict[str, object]],
        vhosts: set[str] | None,
        fits: Callable[[str], bool] | None,
    ) -> None:
        """``connections`` has the fields of connections, by id.

        ``vhosts`` limits the objects to those of virtual hosts, ``fits`` queues to those whose name
        passes the test; None for no limit.
        """
        self._prefix = prefix
        self._connections = connections
        self._vhosts = vhosts
        self._fits = fits
        self._tables: dict[str, Table] = {
            QUEUE: mirror.queues.table,
            EXCHANGE: mirror.exchanges.table,
            CHANNEL: mirror.channels.table,
            CONNECTION: mirror.connections.table,
            LOGINS: mirror.logins.table,
            VHOST: mirror.vhosts.table,
        }

    def text(self, families: Sequence[str]) -> Iterator[str]:
        """Yield the text of families in pieces.

        All values are of one sample. The next sample may come between two pieces and reuse slots,
        so values and labels are copied before the first piece.
        """
        labels: dict[tuple[str, ...], Labels] = {}
        parts: list[tuple[Family, Slots, Labels]] = []
        for name in families:
            family = QUEUE_INFO if name == INFO else FAMILIES[name]
            slots = list(self._slots(name, family))
            if slots:
                key = (name if family.kind == LOGINS else family.kind, *family.labels)
                if key not in labels:
                    labels[key] = self._labels(family, slots)
                parts.append((family, slots, labels[key]))
        totals = {
            (family.kind, metric.columns): self._tables[family.kind].totals(metric.columns)[:]
            for family, _, _ in parts
            for metric in family.metrics
        }
        for family, members, texts in parts:
            for metric in family.metrics:
                name = (CLUSTER if family.cluster else self._prefix) + metric.name
                yield format_head(name, metric.kind, metric.about)
                yield from format_in_pieces(
                    name, texts, scale_values(metric, totals[family.kind, metric.columns], members)
                )

    def _slots(self, name: str, family: Family) -> Slots:
        """Return the slots of the objects of a family, within the limits."""
        table = self._tables[family.kind]
        slots: Slots = table.own_slots()
        if family.kind == LOGINS:
            is_detailed = name == "auth_attempt_detailed_metrics"
            return [slot for slot in slots if bool(table.text("user", slot)) is is_detailed]
        if self._vhosts is not None:
            field = "name" if family.kind == VHOST else "vhost"
            slots = [slot for slot in slots if table.text(field, slot) in self._vhosts]
        if self._fits is not None and family.kind == QUEUE:
            slots = [slot for slot in slots if self._fits(table.text("name", slot))]
        return slots

    def _labels(self, family: Family, slots: Slots) -> Labels:
        """Return the labels of objects, with copies of their values."""
        table = self._tables[family.kind]
        return Labels(
            list(family.labels),
            [
                [self._label(table, field, slot) for slot in slots]
                for field in family.labels.values()
            ],
        )

    def _label(self, table: Table, field: str, slot: int) -> str:
        """Return the value of a label; connections and channels have the name of the API."""
        if field not in COMPUTED:
            return table.text(field, slot)
        if field == "queue_type":
            return f"rabbit_{table.text('type', slot)}_queue"
        if field == "membership":
            return "leader"
        id_field = "number" if field == "connection" else "connection"
        connection = self._connections.get(int(str(table.field(id_field, slot))), {})
        name = str(connection.get("name", ""))
        return name if field == "connection" else f"{name} ({table.field('number', slot)})"


def scale_values(metric: Metric, totals: Sequence[float], slots: Slots) -> Sequence[float]:
    """Return the values of a metric; 1 for a metric without columns."""
    if not metric.columns:
        return [1] * len(slots)
    if metric.scale != 1:
        return [totals[slot] * metric.scale for slot in slots]
    return [totals[slot] for slot in slots]
