# SPDX-License-Identifier: Apache-2.0
"""Reads of streams in the driver: planning of batches, and requests to the broker."""
