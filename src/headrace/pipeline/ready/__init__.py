# SPDX-License-Identifier: Apache-2.0
"""The included pipelines, and the commands for archives, replays, dead letters and new files."""
