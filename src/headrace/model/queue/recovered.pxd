# SPDX-License-Identifier: Apache-2.0
import cython

from headrace.model.message cimport C_KIND_FILE, C_KIND_MASK, Message
from headrace.model.queue.queue cimport Queue

@cython.locals(queue=Queue, message=Message, arrived_ms=cython.longlong)
cpdef restore_messages(object recovered, dict queues, bint is_plain, object restore_other)
