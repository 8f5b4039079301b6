# SPDX-License-Identifier: Apache-2.0
"""Observation of the broker: alarms, the audit log, events, delays.

- `alarms`: memory, disk and cluster alarms, which block publishers
- `audit_log`, `audit_file`: the audit log, and its file, a line for each action
- `audited_events`: tables of audited events and commands
- `audit_limit`: a limit on lines about refused logins
- `account_events`: events about users, permissions and parameters
- `event_exchange`: the exchange ``amq.rabbitmq.event``
- `loop_delay`: how late the event loop is
"""
