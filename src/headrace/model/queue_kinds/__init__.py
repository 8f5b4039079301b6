# SPDX-License-Identifier: Apache-2.0
"""Kinds of queue that order, group or choose otherwise."""
