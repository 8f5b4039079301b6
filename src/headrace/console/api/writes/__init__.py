# SPDX-License-Identifier: Apache-2.0
"""The methods PUT, POST and DELETE of RabbitMQ's API, by area."""
