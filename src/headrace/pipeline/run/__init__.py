# SPDX-License-Identifier: Apache-2.0
"""A pipeline that runs."""
