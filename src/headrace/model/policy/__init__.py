# SPDX-License-Identifier: Apache-2.0
"""Policies, limits and rules of virtual hosts and users; accounts."""
