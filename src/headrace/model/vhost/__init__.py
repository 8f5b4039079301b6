# SPDX-License-Identifier: Apache-2.0
"""The virtual host: its exchanges and queues, and the ways of messages."""
