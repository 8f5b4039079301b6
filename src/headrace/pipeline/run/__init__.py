# SPDX-License-Identifier: Apache-2.0
"""The run of a pipeline: its session, views, rules, queries, checkpoints and status."""
