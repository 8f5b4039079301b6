# SPDX-License-Identifier: Apache-2.0
"""Permissions, passwords, quotas, throttling, and their audit."""
