# SPDX-License-Identifier: Apache-2.0
"""The journal of a virtual host: messages, settlements, definitions, facts, transactions."""
