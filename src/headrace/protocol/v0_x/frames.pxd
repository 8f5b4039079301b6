# SPDX-License-Identifier: Apache-2.0
cpdef bytes framed(unsigned int kind, unsigned int number, bytes payload)
