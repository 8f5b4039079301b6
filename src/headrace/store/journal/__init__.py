# SPDX-License-Identifier: Apache-2.0
"""The journal: which messages are owed, and what else must survive."""
