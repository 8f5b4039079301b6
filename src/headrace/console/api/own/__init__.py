# SPDX-License-Identifier: Apache-2.0
"""``/api/headrace/…``: what RabbitMQ does not have."""
