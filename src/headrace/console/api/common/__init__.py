# SPDX-License-Identifier: Apache-2.0
"""What the handlers of several areas share: lookups, the node, rates."""
