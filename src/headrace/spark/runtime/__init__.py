# SPDX-License-Identifier: Apache-2.0
"""Connections of a process, files written at once, the task at hand."""
