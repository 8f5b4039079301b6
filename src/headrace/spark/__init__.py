# SPDX-License-Identifier: Apache-2.0
"""AMQP streams in Apache Spark."""
