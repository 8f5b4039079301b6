# SPDX-License-Identifier: Apache-2.0
"""The workloads behind headrace bench."""
