# SPDX-License-Identifier: Apache-2.0
"""Contents that are no messages: files and the packets of the stream class."""
