# SPDX-License-Identifier: Apache-2.0
"""Headrace: a durable AMQP broker, its client, and its streams in Spark."""

__version__ = "0.2.0"
