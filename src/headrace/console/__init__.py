# SPDX-License-Identifier: Apache-2.0
"""The console: RabbitMQ's HTTP API, metrics and pages, in a process of its own.

The process talks to the broker by the management socket only (:mod:`.broker`), and imports none of
the packages of the broker. :mod:`.http` serves HTTP, :mod:`.auth` finds the user of a request,
:mod:`.state` samples the objects of the broker. :mod:`.api` has the handlers of ``/api/…``,
:mod:`.pages` the pages, :mod:`.metrics` metrics for Prometheus; :mod:`.run` starts the process.

To add a handler: write ``async def show_queue(call: HttpCall, vhost: str, queue: str)`` in the
module of its resource in :mod:`.api`, with the names that the path has, below a decorator of that
module's ``ROUTES`` with path, summary and rights; :mod:`.api.routes` joins the modules. The
function returns

- an object or a list of JSON, for status 200; None for status 204;
- a :class:`~headrace.console.http.answers.RowList` or a
  :class:`~headrace.console.http.answers.LazyList`: the query filters, orders and pages it;
- an :class:`~headrace.console.http.answers.Answer` for another status, with headers.

A handler that reads a body passes its fields to a function with typed parameters. Pages call that
function, and any other handler itself: a page refuses what the API refuses, with the same words.
:mod:`.api` has the rule for the names of both.

``call.path`` has the decoded segments of the path, ``call.query`` the query, ``await call.body()``
the JSON object of the request. ``await call.ask("delete queue", name=…)`` runs an operation of the
broker as the user of the request; an error of the broker becomes an HTTP error. Other errors are
raised as :class:`~headrace.console.http_errors.HttpError`. :mod:`.http.security_headers` adds the
headers that every answer has.
"""
