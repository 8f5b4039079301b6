# SPDX-License-Identifier: Apache-2.0
"""Records of streams and messages of queues into record batches, and their bodies decoded."""
