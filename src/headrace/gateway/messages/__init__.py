# SPDX-License-Identifier: Apache-2.0
"""Parts of the gateway for messages of any version.

- `distributor`, `route`: from a publish to its queues
- `unsettled`, `consumer_timeout`: unsettled deliveries and their outcomes, overdue ones
- `pending_confirms`: confirms in the order of the publishes
- `delay_header`, `publishing_id`, `stream_headers`, `direct_reply_to`: headers with a meaning here

When a policy changes a timeout, `headrace.gateway.apply_consumer_timeout` applies it to consumers.
"""
