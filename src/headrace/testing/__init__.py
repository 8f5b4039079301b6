# SPDX-License-Identifier: Apache-2.0
"""A real broker for tests."""
