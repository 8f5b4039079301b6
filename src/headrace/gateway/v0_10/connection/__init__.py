# SPDX-License-Identifier: Apache-2.0
"""Connections of 0-10."""
