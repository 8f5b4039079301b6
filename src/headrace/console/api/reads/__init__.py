# SPDX-License-Identifier: Apache-2.0
"""The method GET of RabbitMQ's API, by area."""
