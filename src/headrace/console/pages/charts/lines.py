# SPDX-License-Identifier: Apache-2.0
"""The lines of each chart: the columns or the counter of a line, and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.console.http_errors import not_found


@dataclass(frozen=True, slots=True)
class ChartLine:
    """A line of a chart: a sum of columns, or a counter of messages."""

    label: str
    columns: tuple[str, ...] = ()  # Columns of the samples.
    counter: str = ""  # The name of a counter in the API.
    unit: str = ""
    is_age: bool = False  # The column is a time; the line shows the seconds since that time.


Lines = tuple[ChartLine, ...]
DEPTH_LINES = (ChartLine("ready", ("ready",)), ChartLine("unacked", ("unacked",)))
RATE_LINES = (
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
    ChartLine("redelivered", counter="redeliver", unit="/s"),
)
MESSAGE_LINES = DEPTH_LINES + RATE_LINES
EXCHANGE_LINES = (
    ChartLine("published", counter="publish_in", unit="/s"),
    ChartLine("routed", counter="publish_out", unit="/s"),
    ChartLine("returned", counter="return_unroutable", unit="/s"),
    ChartLine("dropped", counter="drop_unroutable", unit="/s"),
)
CHANNEL_LINES = (
    ChartLine("unacked", ("unacked",)),
    ChartLine("published", counter="publish", unit="/s"),
    ChartLine("delivered", counter="deliver_get", unit="/s"),
    ChartLine("acknowledged", counter="ack", unit="/s"),
)
BYTE_LINES = (
    ChartLine("from client", ("bytes_received",), unit="B/s"),
    ChartLine("to client", ("bytes_sent",), unit="B/s"),
)
# Lines of each chart, by the name of the chart in its address.
CLIENT_CHARTS: Mapping[str, Lines] = {  # A connection, or all connections of a user.
    "rates": (
        ChartLine("published", ("publish",), unit="/s"),
        ChartLine("delivered", ("deliver", "deliver_no_ack", "get", "get_no_ack"), unit="/s"),
        ChartLine("acknowledged", ("ack",), unit="/s"),
        ChartLine("redelivered", ("redeliver",), unit="/s"),
    ),
    "bytes": BYTE_LINES,
}
TOTALS_CHARTS: Mapping[str, Lines] = {
    "messages": DEPTH_LINES,
    "rates": RATE_LINES,
    "clients": (
        ChartLine("connections", ("connections",)),
        ChartLine("channels", ("channels",)),
        ChartLine("consumers", ("consumers",)),
    ),
}
GROUP_CHARTS: Mapping[str, Lines] = {
    "lag": (ChartLine("lag", ("lag",)),),
    "bytes": (ChartLine("lag", ("lag_bytes",), unit="B"),),
    "rates": (
        ChartLine("published", ("durable_offset",), unit="/s"),
        ChartLine("committed", ("committed_records",), unit="/s"),
    ),
    "age": (ChartLine("since the last commit", ("committed_ms",), unit="s", is_age=True),),
    "claimed": (ChartLine("claimed", ("claimed",)),),
}
LEASE_CHARTS: Mapping[str, Lines] = {
    "messages": (ChartLine("leased", ("leased",)), ChartLine("ready", ("ready",))),
    "bytes": (ChartLine("leased", ("leased_bytes",), unit="B"),),
    "rates": (
        ChartLine("taken", ("taken",), unit="/s"),
        ChartLine("settled", ("settled",), unit="/s"),
    ),
    "owned": (ChartLine("owned", ("owned",)),),
}
NODE_CHARTS: Mapping[str, Lines] = {
    "memory": (ChartLine("memory", ("mem_used",), unit="B"),),
    "disk": (ChartLine("disk free", ("disk_free",), unit="B"),),
    "syncs": (ChartLine("journal syncs", ("journal_groups",), unit="/s"),),
    "files": (ChartLine("open files", ("fd_used",)), ChartLine("sockets", ("sockets_used",))),
}


def find_lines(charts: Mapping[str, Lines], chart: str) -> Lines:
    """Return the lines of a chart by its name.

    Raises:
        HttpError: the chart does not exist.
    """
    if chart not in charts:
        raise not_found()
    return charts[chart]
