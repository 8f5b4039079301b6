# SPDX-License-Identifier: Apache-2.0
"""The operation ``sample``: which numbers of which objects changed since the last time."""
