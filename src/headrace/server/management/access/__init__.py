# SPDX-License-Identifier: Apache-2.0
"""Tickets, by which a program acts as a user on the management socket."""
