# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # Orders: from a stream to tables and back
#
# A notebook as a Python file: editors run it cell by cell, and a test runs it as a whole. It needs
# `pip install headrace[spark]` and Java 17 or newer. The broker lives in the notebook's process.

# %%
import json
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.client import Message
from headrace.client.blocking import connect
from headrace.spark.listener import QueryListener
from headrace.testing import LocalBroker

broker = LocalBroker().start()
home = Path(tempfile.mkdtemp())
spark = SparkSession.builder.master("local[2]").appName("orders").getOrCreate()

# %% [markdown]
# ## Some orders
#
# A stream is a queue that keeps what was read. One of the orders is not valid JSON.

# %%
orders = [
    {"id": number, "customer": f"c{number % 3}", "total": 10.5 * number, "tags": ["new"]}
    for number in range(1, 10)
]
with connect(broker.url) as connection, connection.channel() as channel:
    channel.declare_queue("orders", durable=True, arguments={"x-queue-type": "stream"})
    channel.declare_queue("bad-orders", durable=True)
    channel.declare_queue("large-orders", durable=True)
    channel.publish_many([json.dumps(order) for order in orders], "orders")
    channel.publish(Message(b"not an order", content_type="text/plain"), "orders")

# %% [markdown]
# ## Reading what is there
#
# The option `value` decodes the bodies. What a body cannot be decoded to is seen, not lost.

# %%
options = {
    "uri": broker.url,
    "stream": "orders",
    "value": "json",
    "valueSchema": "id BIGINT, customer STRING, total DECIMAL(10, 2), tags ARRAY<STRING>",
}
frame = spark.read.format("amqp").options(**options).load()
frame.select("offset", "value.*", "_corrupt_reason").orderBy("offset").show(truncate=40)

# %%
totals = frame.where("value IS NOT NULL").groupBy("value.customer").sum("value.total")
{row[0]: float(row[1]) for row in totals.collect()}

# %% [markdown]
# ## Following it, exactly once
#
# The checkpoint keeps the offsets; the files have every order once, whatever fails and is run
# again. Invalid orders go to a queue. A listener reports the progress of the query.

# %%
reports = []
listener = QueryListener(reports.append)
spark.streams.addListener(listener)


def run() -> None:
    """Append what has arrived since the last time."""
    stream = (
        spark.readStream.format("amqp")
        .options(**options, startingOffsets="earliest", maxRecordsPerTrigger=5)
        .options(mode="DEADLETTER", deadLetterExchange="", deadLetterRoutingKey="bad-orders")
        .load()
    )
    (
        stream.select("offset", "value.*")
        .writeStream.format("parquet")
        .option("path", str(home / "orders"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


run()
kept = spark.read.parquet(str(home / "orders"))
assert sorted(row.id for row in kept.select("id").collect()) == list(range(1, 10))

# %%
with connect(broker.url) as connection, connection.channel() as channel:
    channel.publish(json.dumps({"id": 10, "customer": "c1", "total": 500}), "orders")
run()
kept = spark.read.parquet(str(home / "orders"))
assert kept.count() == 10

# %% [markdown]
# ## Publishing
#
# Every row becomes a message. `properties` and `headers` are columns too.

# %%
(
    kept.where("total > 80")
    .selectExpr(
        "to_json(struct(id, customer, total)) AS body",
        "'large-orders' AS routing_key",
        "map('customer', customer) AS headers",
        "named_struct('message_id', concat('order-', id)) AS properties",
    )
    .write.format("amqp")
    .options(uri=broker.url, exchange="")
    .mode("append")
    .save()
)

# %%
found = {}
with connect(broker.url) as connection, connection.channel() as channel:
    for queue in ("large-orders", "bad-orders"):
        found[queue] = []
        while (message := channel.get(queue, no_ack=True)) is not None:
            found[queue].append(message)
print(sorted(message.message_id for message in found["large-orders"]))
(letter,) = found["bad-orders"]
print(letter.headers["x-decode-reason"], "at offset", letter.headers["x-decode-offset"])

# %% [markdown]
# ## What the listener has seen

# %%
spark.streams.removeListener(listener)
for report in reports:
    print(report)
broker.stop()
