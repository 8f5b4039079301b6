# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-8, 0-9 and 0-9-1: connections, channels and the methods of every class."""
