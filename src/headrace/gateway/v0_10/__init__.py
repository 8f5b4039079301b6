# SPDX-License-Identifier: Apache-2.0
"""AMQP 0-10: connections, sessions, subscriptions and the commands of every class."""
