# SPDX-License-Identifier: Apache-2.0
"""The subjects of operators: all operations on a resource, and its rows, in one module."""
