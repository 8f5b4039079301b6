# SPDX-License-Identifier: Apache-2.0
"""Spark's part of the bench."""
