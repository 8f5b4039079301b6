# SPDX-License-Identifier: Apache-2.0
"""The handlers of ``/api/…``, one module a resource, and the functions that pages share with them.

The name of a function shows who calls it:

- ``list_…`` and ``show_…`` handle GET. Pages call them, too.
- ``get_…``, ``put_…``, ``post_…`` and ``delete_…`` handle the HTTP method of their name. Only the
  router calls them. They read the query or the body of a request, and pass typed arguments to the
  function that does the work.
- That function, and a handler that needs only the path of a request, has the verb of its operation:
  ``declare_queue``, ``set_permission``, ``purge_queue``, ``remove_queue``. Pages call it.

Handlers of :mod:`.health` are named ``check_…``. ``refuse_…`` answers a path that clients know and
that Headrace does not serve. ``describe_…`` returns an object with the fields of RabbitMQ's API.
"""
