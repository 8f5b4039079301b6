# SPDX-License-Identifier: Apache-2.0
"""A message's way through the gateway, whatever its version."""
