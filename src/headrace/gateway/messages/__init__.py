# SPDX-License-Identifier: Apache-2.0
"""Parts of the gateway for messages of any version.

- `distributor`, `route`: distribution of a publish to its queues
- `unsettled`, `consumer_timeout`: unsettled deliveries and their outcomes, overdue ones
- `pending_confirms`: the queue of confirms that wait for the disk
- `delay_header`, `publishing_id`, `stream_headers`, `direct_reply_to`: headers that the broker uses

When a policy changes a timeout, `headrace.gateway.retime_consumers` applies it to consumers.
"""
