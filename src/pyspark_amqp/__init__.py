# SPDX-License-Identifier: Apache-2.0
"""Where Spark finds `format("amqp")`: it looks for `DefaultSource` in modules named pyspark_*.

Spark imports every such module at the first unknown format, so this one stays light: the client
and Arrow are imported only when a query reads or writes.
"""

from headrace.spark.source import AmqpSource as DefaultSource

__all__ = ["DefaultSource"]
