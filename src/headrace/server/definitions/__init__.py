# SPDX-License-Identifier: Apache-2.0
"""Definitions in RabbitMQ's JSON format: reading, planning, applying, writing."""
