# SPDX-License-Identifier: Apache-2.0
"""Observation by operators: alarms, audit log, events."""
