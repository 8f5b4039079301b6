# SPDX-License-Identifier: Apache-2.0
"""The lines of each chart: the columns or the counter that a line shows, and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.console.http_errors import not_found

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart: the sum of columns, or a counter of messages by the name of the API."""

    label: str
    columns: Columns = ()
    counter: str = ""
    unit: str = ""
    is_age: bool = False  # The column is a time, the line the seconds since then.


DEPTHS = (ChartLine("ready", ("ready",)), ChartLine("unacked", ("unacked",)))
RATES = (
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
    ChartLine("redelivered", counter="redeliver", unit="/s"),
)
ROUTED = (
    ChartLine("published", counter="publish_in", unit="/s"),
    ChartLine("routed", counter="publish_out", unit="/s"),
    ChartLine("returned", counter="return_unroutable", unit="/s"),
    ChartLine("dropped", counter="drop_unroutable", unit="/s"),
)
OF_CHANNEL = (
    ChartLine("unacked", ("unacked",)),
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
)
BYTES = (
    ChartLine("from client", ("bytes_received",), unit="B/s"),
    ChartLine("to client", ("bytes_sent",), unit="B/s"),
)
OF_CLIENT: Mapping[str, tuple[ChartLine, ...]] = {  # A connection, or the connections of a user.
    "rates": (
        ChartLine("published", ("publish",), unit="/s"),
        ChartLine("delivered", ("deliver", "deliver_no_ack", "get", "get_no_ack"), unit="/s"),
        ChartLine("acknowledged", ("ack",), unit="/s"),
        ChartLine("redelivered", ("redeliver",), unit="/s"),
    ),
    "bytes": BYTES,
}
OF_TOTALS: Mapping[str, tuple[ChartLine, ...]] = {
    "messages": DEPTHS,
    "rates": RATES,
    "clients": (
        ChartLine("connections", ("connections",)),
        ChartLine("channels", ("channels",)),
        ChartLine("consumers", ("consumers",)),
    ),
}
OF_GROUP: Mapping[str, tuple[ChartLine, ...]] = {
    "lag": (ChartLine("lag", ("lag",)),),
    "bytes": (ChartLine("lag", ("lag_bytes",), unit="B"),),
    "rates": (
        ChartLine("published", ("durable_offset",), unit="/s"),
        ChartLine("committed", ("committed_records",), unit="/s"),
    ),
    "age": (ChartLine("since the last commit", ("committed_ms",), unit="s", is_age=True),),
    "claimed": (ChartLine("claimed", ("claimed",)),),
}
OF_LEASE: Mapping[str, tuple[ChartLine, ...]] = {
    "messages": (ChartLine("leased", ("leased",)), ChartLine("ready", ("ready",))),
    "bytes": (ChartLine("leased", ("leased_bytes",), unit="B"),),
    "rates": (
        ChartLine("taken", ("taken",), unit="/s"),
        ChartLine("settled", ("settled",), unit="/s"),
    ),
    "owned": (ChartLine("owned", ("owned",)),),
}
OF_NODE: Mapping[str, tuple[ChartLine, ...]] = {
    "memory": (ChartLine("memory", ("mem_used",), unit="B"),),
    "disk": (ChartLine("disk free", ("disk_free",), unit="B"),),
    "syncs": (ChartLine("journal syncs", ("journal_groups",), unit="/s"),),
    "files": (ChartLine("open files", ("fd_used",)), ChartLine("sockets", ("sockets_used",))),
}


def lines_of(charts: Mapping[str, tuple[ChartLine, ...]], chart: str) -> tuple[ChartLine, ...]:
    """Return the lines of a chart.

    Raises:
        HttpError: the chart does not exist.
    """
    if chart not in charts:
        raise not_found()
    return charts[chart]
