# SPDX-License-Identifier: Apache-2.0
"""Checks of 0-10."""
