# SPDX-License-Identifier: Apache-2.0
"""The operation ``sample``: the numbers of all objects that changed since an earlier sample."""
