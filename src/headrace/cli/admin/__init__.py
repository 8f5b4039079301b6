# SPDX-License-Identifier: Apache-2.0
"""Commands for accounts, policies, definitions and objects."""
