# SPDX-License-Identifier: Apache-2.0
"""What operators see: alarms, audit log, events."""
