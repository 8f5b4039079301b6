# SPDX-License-Identifier: Apache-2.0
"""The current task, and a faster start of Spark."""
