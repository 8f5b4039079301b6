# SPDX-License-Identifier: Apache-2.0
"""Trial runs of pipelines on samples, and comparison of their rows with expected rows."""
