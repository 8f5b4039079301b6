# SPDX-License-Identifier: Apache-2.0
"""The included pipelines, and their commands: archive, replay, dead letters, new."""
