# SPDX-License-Identifier: Apache-2.0
"""How a pipeline stands, for people and for machines."""
