# SPDX-License-Identifier: Apache-2.0
"""The console: RabbitMQ's HTTP API, metrics and pages, in a process of its own.

The process talks to the broker only through the management socket (:mod:`.broker`), and imports
none of the packages of the broker:

- :mod:`.http` serves HTTP: routes, limits, the query and the body of a request.
- :mod:`.auth` finds the user of a request.
- :mod:`.state` samples the objects of the broker.
- :mod:`.api` has the handlers of ``/api/…``, :mod:`.pages` the pages, :mod:`.metrics` the metrics
  for Prometheus.
- :mod:`.run` starts the process.

A handler is a function such as ``async def show_queue(call: HttpCall, vhost: str, queue: str)`` in
the module of its resource in :mod:`.api`. Its parameters have the names of the path. It is below a
decorator of the module's ``ROUTES`` with path, summary and rights; :mod:`.api.routes` joins the
modules. The function returns

- an object or a list of JSON, for status 200; None for status 204;
- a :class:`~headrace.console.http.answers.RowList` or a
  :class:`~headrace.console.http.answers.LazyList`: the query filters, orders and pages it;
- an :class:`~headrace.console.http.answers.Answer` for another status, with headers.

A handler that reads a body passes its fields to a function with typed parameters. Pages call that
function, or the handler if it reads no body: a page refuses what the API refuses, with the same
text. :mod:`.api` has the rule for the names of both.

``call.path`` has the decoded segments of the path, ``call.query`` the query, and
``await call.body.json_object()`` returns the JSON object of the request.
``await call.broker.ask("delete queue", name=…)`` runs an operation of the broker as the user of the
request; an error of the broker becomes an HTTP error. Handlers raise other errors as
:class:`~headrace.console.http_errors.HttpError`. :mod:`.http.security_headers` adds the headers
that every answer has.
"""
