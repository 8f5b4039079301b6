# SPDX-License-Identifier: Apache-2.0
"""These tests run without Spark, against a broker in their own process."""

from support.brokers.local_broker import broker, connection

__all__ = ["broker", "connection"]
