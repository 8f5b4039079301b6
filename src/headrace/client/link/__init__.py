# SPDX-License-Identifier: Apache-2.0
"""Links: one version's way to a broker, and how it is opened."""
