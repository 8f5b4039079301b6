# SPDX-License-Identifier: Apache-2.0
"""Policies, rules of virtual hosts and users, and who has which account."""
