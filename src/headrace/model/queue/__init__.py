# SPDX-License-Identifier: Apache-2.0
"""The queue and the objects that it consists of.

- `queue`: enqueue, dispatch, settle, requeue
- `ready_list`, `ring`: ready messages in order, by priority; cursors
- `overflow`: length limits and the overflow policy
- `expiry`, `not_before`: message TTL; messages that are not due yet
- `destination`: consumers, their round (priority, single active consumer), the port to queues
- `browsing`: browsers and filters
- `delivery_count`, `delivery_mark`: delivery limits, redelivered
- `retry_backoff`: messages that wait for their next delivery
- `dead_letter_sender`: sends dead letters to `headrace.model.vhost.dead_lettering`
- `flow_control`: thresholds that stop publishers and raise alerts
- `queue_host`: the port of queues to their virtual host
- `recovered`: restores recovered messages to their queues
"""
