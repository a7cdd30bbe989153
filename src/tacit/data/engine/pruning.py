"""Pruning: a query without the columns that it does not use.

Engines leave out unused columns themselves, but not all of them: DuckDB turns a long list of
categories into a join, and joins for a column that nobody reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import ibis.expr.operations as ops
import ibis.expr.types as ir

__all__ = ["prune", "used_columns"]


def prune(query: ir.Table) -> ir.Table:
    """The same query, every selection in it cut down to the columns that are read above it."""
    root = query.op()
    return _rebuilt(root, used_columns(root), {}).to_expr()


def used_columns(root: ops.Relation) -> dict[Any, set[str]]:
    """The columns of each relation that are read above it, found from the top down."""
    used: dict[Any, set[str]] = defaultdict(set)
    used[root] = set(root.schema)
    for node in reversed(root.find(ops.Relation, ordered=True)):
        for field in _fields(_expressions(node, used[node])):
            used[field.rel].add(field.name)
        if isinstance(node, ops.Filter | ops.SelfReference | ops.Union):
            for below in _below(node):
                used[below] |= used[node]
        elif not isinstance(node, ops.Project | ops.Aggregate):
            for below in _below(node):
                used[below] |= set(below.schema)
    return used


def _expressions(node: ops.Relation, kept: set[str]) -> Iterable[Any]:
    if isinstance(node, ops.Project):
        return [value for name, value in node.values.items() if name in kept]
    if isinstance(node, ops.Filter):
        return list(node.predicates)
    if isinstance(node, ops.Aggregate):
        return [*node.groups.values(), *node.metrics.values()]
    return ()


def _fields(expressions: Iterable[Any]) -> Iterable[ops.Field]:
    for expression in expressions:
        yield from expression.find(ops.Field, filter=ops.Value)


def _below(node: ops.Relation) -> list[ops.Relation]:
    return [child for child in node.__children__ if isinstance(child, ops.Relation)]


def _rebuilt(node: ops.Relation, used: dict[Any, set[str]], done: dict[Any, Any]) -> ops.Relation:
    if node not in done:
        below = {child: _rebuilt(child, used, done) for child in _below(node)}
        if isinstance(node, ops.Project):
            kept = {name: value.replace(below) for name, value in node.values.items() if name in used[node]}
            done[node] = ops.Project(below[node.parent], kept or {"nothing": ops.Literal(1, "int8")})
        else:
            done[node] = node.replace(below) if below else node
    return done[node]
