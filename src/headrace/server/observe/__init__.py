# SPDX-License-Identifier: Apache-2.0
"""Observation of the broker: alarms, the audit log, events, delays.

- `alarms`: memory, disk and cluster alarms, which block publishers
- `audit_log`: the lines of the audit log; `audit_file`: its file, and the thread that writes it
- `audited_events`: tables of audited events and commands
- `audit_limit`: a limit on lines about refused logins
- `account_events`: events about users, permissions and parameters
- `event_exchange`: the exchange ``amq.rabbitmq.event``
- `loop_delay`: the delay of the event loop
"""
