# SPDX-License-Identifier: Apache-2.0
"""Operations on messages: peek, browse, move, jobs."""
