# SPDX-License-Identifier: Apache-2.0
"""Operations that show more than a list does: routes, topology, settings and logs."""
