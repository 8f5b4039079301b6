# SPDX-License-Identifier: Apache-2.0
"""The table of all options of the data source: name, kind, uses and meaning of each.

The module `parse` checks the options of a user against the table and refuses other options. The
module `page` generates docs/reference/spark-options.md from the table.
"""

from __future__ import annotations

from typing import Final

from headrace.columns.options import kinds
from headrace.columns.options.option import (
    BATCH,
    QUEUE_SOURCES,
    READS,
    STREAM_SOURCES,
    STREAMING,
    WRITES,
    Option,
    Section,
    Use,
)
from headrace.columns.options.table_decode import DECODING

CONNECTION: Final = Section(
    "The broker",
    (
        Option(
            name="uri",
            kind=kinds.URI,
            doc="the broker's URL, with the parameters of [the client](../guides/client.md); "
            "several brokers are tried in turn, and each may take over",
            default="required, or `host`",
            excludes=("host", "port", "tls"),
        ),
        Option(
            name="uriFile",
            kind=kinds.TEXT,
            doc="a file on the driver with the URL, so that no plan shows it",
            excludes=("uriEnv",),
        ),
        Option(
            name="uriEnv",
            kind=kinds.TEXT,
            doc="an environment variable of the driver with the same",
        ),
        Option(
            name="host",
            kind=kinds.HOSTS,
            doc="the broker's host, instead of a URL; several with commas are tried in turn",
        ),
        Option(
            name="port",
            kind=kinds.PORT,
            doc="its port",
            default="5672, with TLS 5671",
            needs="host",
        ),
        Option(
            name="user",
            kind=kinds.ANY_TEXT,
            doc="the user, if the URL has none",
            default="`guest`",
            aliases=("username",),
        ),
        Option(
            name="password",
            kind=kinds.SECRET,
            doc="the password, if the URL has none; not percent-encoded",
            default="`guest`",
        ),
        Option(
            name="passwordFile",
            kind=kinds.TEXT,
            doc="a file on the driver with the password, such as a mounted secret",
            excludes=("passwordEnv",),
        ),
        Option(
            name="passwordEnv",
            kind=kinds.TEXT,
            doc="an environment variable of the driver with the same",
        ),
        Option(
            name="vhost",
            kind=kinds.NONEMPTY_NAME,
            doc="the virtual host, if the URL has none; not percent-encoded",
            default="`/`",
        ),
        Option(
            name="tls",
            kind=kinds.BOOLEAN,
            doc="use TLS to `host`; in a URL use `amqps://`",
            default="`false`",
            needs="host",
        ),
        Option(
            name="tlsCa",
            kind=kinds.TEXT,
            doc="PEM file of the authorities to trust, on the driver and on every executor",
            default="the system's",
        ),
        Option(name="tlsCert", kind=kinds.TEXT, doc="PEM file of the client's certificate"),
        Option(
            name="tlsKey",
            kind=kinds.TEXT,
            doc="PEM file of the certificate's key",
            default="in `tlsCert`",
            needs="tlsCert",
        ),
        Option(
            name="tlsVerify",
            kind=kinds.BOOLEAN,
            doc="verify the broker's certificate and name; `false` is for tests",
            default="`true`",
        ),
        Option(
            name="tlsServerName",
            kind=kinds.TEXT,
            doc="the name that the broker's certificate must have",
            default="the host",
        ),
        Option(
            name="saslMechanism",
            kind=kinds.choice(
                *("PLAIN", "AMQPLAIN", "SCRAM-SHA-256", "EXTERNAL", "ANONYMOUS"),
                *("XOAUTH2", "OAUTHBEARER"),
            ),
            doc="the login mechanism",
            default="the best that both peers support; `EXTERNAL` with a certificate",
        ),
        Option(
            name="protocolVersion",
            kind=kinds.choice("0-8", "0-9", "0-9-1", "0-10"),
            doc="the version of AMQP",
            default="`0-9-1`",
        ),
        Option(
            name="reconnectTimeout",
            kind=kinds.DURATION,
            doc="the time for which a broker may be unreachable, after a first connection, "
            "before the query fails",
            default="`60s`",
        ),
    ),
)

SOURCE: Final = Section(
    "What to read",
    (
        Option(
            name="stream",
            kind=kinds.STREAM,
            doc="a stream; or several as JSON, as in `streams`",
            default="one of the five is required",
            uses=READS,
            excludes=("streams", "streamPattern", "superStream", "queue"),
        ),
        Option(
            name="streams",
            kind=kinds.STREAMS,
            doc="several streams, with commas or as JSON",
            uses=READS,
            excludes=("streamPattern", "superStream", "queue"),
            aliases=("subscribe",),
        ),
        Option(
            name="streamPattern",
            kind=kinds.PATTERN,
            doc="all streams whose whole name matches a regular expression; streams declared "
            "while a query runs are read from their beginning",
            uses=READS,
            excludes=("superStream", "queue"),
            aliases=("subscribePattern",),
        ),
        Option(
            name="superStream",
            kind=kinds.NONEMPTY_NAME,
            doc="the partitions of a super stream; partitions added while a query runs are "
            "read from their beginning",
            uses=READS,
            excludes=("queue",),
        ),
        Option(
            name="queue",
            kind=kinds.NONEMPTY_NAME,
            doc="a queue. A streaming read takes its messages by leases and settles them when"
            " their batch is committed. A batch read browses them",
            uses=READS,
        ),
        Option(
            name="group",
            kind=kinds.NONEMPTY_NAME,
            doc="the name under which the broker stores the query's progress; one live query "
            "may use it. For streams these are the committed positions, the lag, and the "
            "start of a query without checkpoint; for a queue its leases",
            default="none for streams, `spark` for a queue",
            uses=STREAMING,
        ),
        Option(
            name="groupTimeout",
            kind=kinds.DURATION,
            doc="the time to wait for a group that another query owns; then the query fails",
            default="`40s`",
            uses=STREAMING,
        ),
        Option(
            name="pinRetention",
            kind=kinds.BOOLEAN,
            doc="make retention keep records that the group has not read, up to a limit of "
            "the broker",
            default="`false`",
            uses=STREAMING,
            sources=STREAM_SOURCES,
            needs="group",
        ),
        Option(
            name="spoolDirectory",
            kind=kinds.TEXT,
            doc="for brokers without leases, such as RabbitMQ: a durable directory that driver and "
            "executors share, which keeps messages of the queue until their batch is committed",
            uses=STREAMING,
            sources=QUEUE_SOURCES,
        ),
        Option(
            name="spoolBytesMax",
            kind=kinds.SIZE,
            doc="maximum size of the spool; beyond it no messages are consumed until a batch is "
            "committed",
            default="`1g`",
            uses=STREAMING,
            sources=QUEUE_SOURCES,
            needs="spoolDirectory",
        ),
        Option(
            name="filter",
            kind=kinds.TEXTS,
            doc="read only records with this value in the header `x-stream-filter-value`; "
            "several values as JSON. The broker skips the others",
            uses=READS,
            sources=STREAM_SOURCES,
        ),
        Option(
            name="filterMatchUnfiltered",
            kind=kinds.BOOLEAN,
            doc="also read records without this header",
            default="`false`",
            uses=READS,
            sources=STREAM_SOURCES,
            needs="filter",
        ),
        Option(
            name="includeBody",
            kind=kinds.BOOLEAN,
            doc="have a column `body`",
            default="`true`; with `value`, `false`",
            uses=READS,
        ),
        Option(
            name="includeHeaders",
            kind=kinds.BOOLEAN,
            doc="have a column `headers`",
            default="`true`",
            uses=READS,
        ),
    ),
)

RANGE: Final = Section(
    "From where to where",
    (
        Option(
            name="startingOffsets",
            kind=kinds.POSITIONS,
            doc="the start of a query without checkpoint. By stream each value is `earliest` "
            "(-2), `latest` (-1), an offset, or a moment with its zone",
            default="`latest` for streaming, `earliest` for batch",
            uses=READS,
            sources=STREAM_SOURCES,
            excludes=("startingTimestamp", "startingOffsetsByTimestamp"),
        ),
        Option(
            name="startingTimestamp",
            kind=kinds.MOMENT,
            doc="begin with the first record that arrived then or later, in every stream",
            uses=READS,
            sources=STREAM_SOURCES,
            excludes=("startingOffsetsByTimestamp",),
        ),
        Option(
            name="startingOffsetsByTimestamp",
            kind=kinds.MOMENTS,
            doc="the same by stream",
            uses=READS,
            sources=STREAM_SOURCES,
        ),
        Option(
            name="startingOffsetsByTimestampStrategy",
            kind=kinds.choice("error", "latest"),
            doc="the behaviour for a stream in which no record arrived then or later: fail, "
            "or begin at the end",
            default="`error`",
            uses=READS,
            sources=STREAM_SOURCES,
        ),
        Option(
            name="endingOffsets",
            kind=kinds.POSITIONS,
            doc="the end, exclusive, as `startingOffsets`",
            default="`latest`",
            uses=BATCH,
            sources=STREAM_SOURCES,
            excludes=("endingTimestamp", "endingOffsetsByTimestamp"),
            instead="to stop a streaming query when it has read the existing records, use "
            "trigger(availableNow=True)",
        ),
        Option(
            name="endingTimestamp",
            kind=kinds.MOMENT,
            doc="end before the first record that arrived then or later, in every stream",
            uses=BATCH,
            sources=STREAM_SOURCES,
            excludes=("endingOffsetsByTimestamp",),
        ),
        Option(
            name="endingOffsetsByTimestamp",
            kind=kinds.MOMENTS,
            doc="the same by stream",
            uses=BATCH,
            sources=STREAM_SOURCES,
        ),
    ),
)

PACE: Final = Section(
    "How much at a time",
    (
        Option(
            name="maxRecordsPerTrigger",
            kind=kinds.COUNT,
            doc="the maximum number of records of a micro-batch, for all streams together",
            default="no limit; `100000` for a queue",
            uses=STREAMING,
            aliases=("maxOffsetsPerTrigger",),
        ),
        Option(
            name="maxBytesPerTrigger",
            kind=kinds.SIZE,
            doc="the maximum size of the records of a micro-batch, in bytes; at least one "
            "record is read",
            default="no limit; `256m` for a queue",
            uses=STREAMING,
        ),
        Option(
            name="minRecordsPerTrigger",
            kind=kinds.COUNT,
            doc="wait for this number of records, or until `maxTriggerDelay` is over",
            default="1",
            uses=STREAMING,
            aliases=("minOffsetsPerTrigger",),
        ),
        Option(
            name="maxTriggerDelay",
            kind=kinds.DURATION,
            doc="the longest wait for `minRecordsPerTrigger`",
            default="`15m`",
            uses=STREAMING,
            needs="minRecordsPerTrigger",
        ),
        Option(
            name="minPartitions",
            kind=kinds.whole_number(1, 100_000),
            doc="the approximate number of tasks of a read",
            default="one for each core of the driver, of 1,000 records or more",
            uses=READS,
        ),
        Option(
            name="maxRecordsPerPartition",
            kind=kinds.COUNT,
            doc="the maximum number of records of a task",
            default="no limit",
            uses=READS,
        ),
        Option(
            name="failOnDataLoss",
            kind=kinds.BOOLEAN,
            doc="fail if retention deleted records before they were read; with `false` the "
            "query continues and counts them",
            default="`true`",
            uses=READS,
            sources=STREAM_SOURCES,
        ),
        Option(
            name="archive",
            kind=kinds.DIRECTORY,
            doc="the directory of an archive of the streams, Parquet or Delta, from which "
            "records are read that retention deleted",
            uses=READS,
            sources=STREAM_SOURCES,
            excludes=("filter", "maxBytesPerTrigger"),
        ),
    ),
)

SINK: Final = Section(
    "Writing",
    (
        Option(
            name="exchange",
            kind=kinds.NAME,
            doc='the target exchange; `""` is the default exchange',
            default="the column `exchange`",
            uses=WRITES,
        ),
        Option(
            name="routingKey",
            kind=kinds.NAME,
            doc="the routing key",
            default="the column `routing_key`, or empty",
            uses=WRITES,
        ),
        Option(
            name="deliveryGuarantee",
            kind=kinds.choice("exactly-once", "at-least-once"),
            doc="`exactly-once` stages a batch and makes all of it visible at once; "
            "`at-least-once` publishes rows as they are computed, again if Spark runs a "
            "task or a batch again",
            default="`exactly-once`",
            uses=WRITES,
        ),
        Option(
            name="sinkId",
            kind=kinds.NONEMPTY_NAME,
            doc="the name, of at most 64 bytes, under which the broker stores the number of "
            "the last batch; one query, or one program that writes batches, may use it",
            default="the id of the query, which is in its checkpoint; none for a batch write",
            uses=WRITES,
        ),
        Option(
            name="batchId",
            kind=kinds.whole_number(0, (1 << 63) - 1),
            doc="the number of this batch write, as `foreachBatch` has it. If it is not above"
            " the last batch of its `sinkId`, nothing is written",
            default="every batch write is written",
            uses=frozenset({Use.WRITE}),
            needs="sinkId",
        ),
        Option(
            name="sinkTakeover",
            kind=kinds.BOOLEAN,
            doc="let a query with a new checkpoint use the `sinkId` of another query, whose "
            "batches are forgotten",
            default="`false`",
            uses=WRITES,
            needs="sinkId",
        ),
        Option(
            name="mandatory",
            kind=kinds.BOOLEAN,
            doc="fail if a message reaches no queue",
            default="`true`",
            uses=WRITES,
        ),
        Option(
            name="persistent",
            kind=kinds.BOOLEAN,
            doc="publish persistent messages, which survive a restart of the broker",
            default="`true`",
            uses=WRITES,
        ),
    ),
)

SECTIONS: Final = (CONNECTION, SOURCE, RANGE, PACE, DECODING, SINK)
OPTIONS: Final = tuple(option for section in SECTIONS for option in section.options)
# Options that Spark itself adds to the options of a data source.
SPARK_OPTIONS: Final = ("checkpointLocation", "path", "queryName", "triggerInterval", "outputMode")
# Parts of the names of Spark's own options that are refused, with the reasons.
REFUSED_OPTIONS: Final = {
    "asyncProgressTracking": "Spark would write a batch before its offsets are in the checkpoint, "
    "so a batch that runs again could have other rows, and the sink would skip them",
}
