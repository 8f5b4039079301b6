# SPDX-License-Identifier: Apache-2.0
"""Commands of 0-10, a module for each class.

A handler reads the command and answers it. Rules that it relies on are kept

- in `headrace.gateway.v0_10.session.subscription`: credit, flow modes
- in `headrace.gateway.v0_10.session.deliveries`: acquiring, accepting, rejecting, releasing
- in `headrace.gateway.v0_10.session.transfer_receiver`: transfers to the broker
- in `headrace.gateway.security.authorized_host`: permissions, missing queues and exchanges
- in `headrace.model.vhost`: declarations, deletions, bindings
- in `headrace.model.transaction.dtx`: the states of a branch
"""
