# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas of answers: of RabbitMQ's paths, and of our own."""
