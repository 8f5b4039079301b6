# SPDX-License-Identifier: Apache-2.0
"""The queue and the parts that it holds.

- `queue`: enqueue, dispatch, settle, requeue
- `ready_list`, `ring`: ready messages in order, by priority; cursors
- `overflow`: length limits and the overflow policy
- `expiry`, `not_before`: message TTL; messages that are not due yet
- `queue_host`: what queues need of their virtual host
- `browsing`, `destination`: browsers and filters; consumers and their round
- `delivery_count`, `delivery_mark`: delivery limits, redelivered
- `retry_backoff`: messages that wait for their next try
- `dead_letter_sender`: from the queue to `headrace.model.vhost.dead_lettering`
- `flow_control`: thresholds that stop publishers and raise alerts
"""
