# SPDX-License-Identifier: Apache-2.0
"""The resources that operators manage: a module has all operations on one, and its rows."""
