# SPDX-License-Identifier: Apache-2.0
"""Pipelines are tried on samples: their rows beside the expected ones."""
