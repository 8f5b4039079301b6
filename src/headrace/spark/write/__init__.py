# SPDX-License-Identifier: Apache-2.0
"""Writes of rows as messages: encoding, publishing in tasks, and commits in the driver."""
