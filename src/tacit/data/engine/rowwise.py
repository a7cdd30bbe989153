"""User expressions made row-by-row and total.

:func:`rowwise` takes an Ibis expression apart and rebuilds it from a closed list of operations. Each has a
rule that keeps two promises: the result depends on one row only, and nothing in that row can make the
engine raise. An operation without a rule is refused. The promises hold on DuckDB and on Spark, whatever their
settings about division by zero.

Numbers
    All are float64: integers are read as float64, so nothing overflows (whole numbers are exact up to
    2**53). There is no NaN: in a column it is read as NULL, and ∞ − ∞ and 0·∞ are NULL. ±∞ stay.
    NULL too are ``x / 0``, ``x // 0``, ``x % 0``, 0 to a negative power, a power with an infinite exponent,
    the logarithm of what is not above 0 and the root of a negative number. ``%`` has the sign of its left
    side; ``round`` takes halves away from 0.
Missing values
    ``isnan`` asks the same as ``isnull``. Arithmetic, ``clip``, ``least`` and ``greatest`` are NULL if any of
    their values is. Comparisons and logic have SQL's three values; a NULL condition leaves the row out.
Dates
    Outside the years 1 to 9999 (DuckDB's infinity, say) they are read as NULL.
Engines
    Both give the same answers, up to the sign of zero, with one exception: ``exp``, ``ln``, ``log``,
    ``log2``, ``log10`` and powers other than 0.5, 1, 2 and 3 come from the engine's own library and may
    differ in the last bits. Operations in which engines disagree more (``lower``, say) are refused.

Guards sit inside the function they protect, ``ln(if(x > 0, x, NULL))``, never around it, so that no
promise hangs on the order in which an engine evaluates.

>>> import ibis
>>> table = ibis.table({"income": "float64", "members": "int64"}, name="households")
>>> str(rowwise(ibis._.income / ibis._.members, table).type())
'float64'
>>> rowwise(ibis._.income > ibis._.income.mean(), table)
Traceback (most recent call last):
...
tacit.errors.InvalidValue: expression must be row-by-row, got 'mean()'. mean() mixes rows; ...
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NoReturn

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
import ibis.expr.types as ir

from tacit.errors import InvalidValue
from tacit.schema import LARGEST

__all__ = ["rowwise"]

_WHOLE = float(LARGEST)
_FRACTIONS = 2.0**52
"""From here on, floats have no fraction."""
_MOST_NODES = 5000
_DTYPES: dict[str, Any] = {"date": dt.date, "number": dt.float64, "boolean": dt.boolean, "string": dt.string}


@dataclass(frozen=True)
class _Term:
    """A translated part of the expression, with what is known about its values.

    Of a number: ``bound`` limits its absolute value, ``nan`` says that it may be NaN, ``whole`` that it
    has no fraction. ``constant`` is its value if it is a literal.
    """

    node: Any
    kind: str
    bound: float = math.inf
    nan: bool = False
    whole: bool = False
    constant: Any = None

    @property
    def infinite(self) -> bool:
        return math.isinf(self.bound)


_Terms = Mapping[Any, _Term]
_RULES: dict[type, Callable[[Any, _Terms], _Term]] = {}
"""What is allowed: operations, by their exact class, and how each is translated."""


def _rule(*operations: type) -> Callable[[Any], Any]:
    def register(rule: Any) -> Any:
        _RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


def rowwise(expression: Any, table: ir.Table) -> ir.Value:
    """The expression made row-by-row and total, or :class:`tacit.errors.InvalidValue`.

    ``expression`` is a deferred one (``ibis._.age > 40``), a function of the table, or an Ibis value built on
    ``table``. The first two are resolved on a stand-in with the same columns and no rows, so that they cannot
    look at the data. Numbers come out as float64 without NaN.

    Guarantee: the value in a row is a function of that row's columns alone, and evaluating it cannot raise,
    because it is composed of listed operations only, each guarded where it is not total.
    """
    stand_in = ibis.table(table.schema(), name="row")
    root = _resolved(expression, stand_in).op()
    unknown = root.find(lambda op: type(op) not in _RULES and type(op) is not ops.Field, filter=ops.Value)
    if unknown:
        _refuse(*min(map(_reason, unknown), key=lambda reason: reason[1] == _UNKNOWN))
    relation = table.op()

    def translate(op: Any, terms: _Terms, **_: Any) -> _Term:
        if type(op) is not ops.Field:
            return _RULES[type(op)](op, terms)
        if op.rel not in (relation, stand_in.op()):
            _refuse(f"column {op.name}", "belongs to another table")
        return _column(ops.Field(relation, op.name))

    term = root.map(translate, filter=ops.Value)[root]
    node = _clean(_null("number") if term.kind == "null" else term).node
    size = node.map(_size, filter=ops.Value)[node]
    if size > _MOST_NODES:
        _refuse("this expression", f"becomes {size} operations with its guards, above {_MOST_NODES}")
    made: ir.Value = node.to_expr()
    return made


def _size(op: Any, sizes: Mapping[Any, int], **_: Any) -> int:
    return 1 + sum(sizes.get(child, 0) for child in op.__children__)


def _resolved(expression: Any, stand_in: ir.Table) -> ir.Value:
    value, needed = expression, "an Ibis expression of one row"
    try:
        if isinstance(expression, ibis.Deferred):
            value = expression.resolve(stand_in)
        elif callable(expression):
            value = expression(stand_in)
    except Exception as error:
        told = str(error).partition("\n")[0]
        columns = ", ".join(name for name in stand_in.columns if not name.startswith("__"))
        raise InvalidValue("expression", told, needed, f"The columns are {columns}.") from error
    if not isinstance(value, ir.Value):
        raise InvalidValue("expression", type(value).__name__, needed, "For example ibis._.age > 40.")
    return value


_UNKNOWN = "is not known to be row-by-row"
_REASONS: tuple[tuple[Any, str], ...] = (
    (ops.Reduction, "mixes rows; what is common to all rows is a question of its own"),
    ((ops.Analytic, ops.WindowFunction, ops.SortKey), "looks at other rows"),
    (ops.Subquery, "reads a table, not the row"),
    (ops.ScalarUDF, "runs code that cannot be checked"),
    (ops.Impure, "does not depend on the row alone"),
    (ops.RowID, "depends on where the row is stored"),
    (ops.Unnest, "makes several rows of one"),
    (ops.TryCast, "reads text differently on each engine; declare the type of the column in the schema"),
    ((ops.Lowercase, ops.Uppercase), "differs between engines outside ASCII; name the spellings with isin()"),
    ((ops.LStrip, ops.RStrip), "differs between engines; use strip()"),
    (ops.StringConcat, "can outgrow what an engine can hold"),
    ((ops.DateAdd, ops.DateSub, ops.DateDiff), "can leave the calendar; use delta(other, unit='day')"),
)
_NAMES = {
    "random_scalar": "random",
    "timestamp_now": "now",
    "date_now": "today",
    "window_function": "over",
    "in_subquery": "isin",
    "standard_dev": "std",
    "count_star": "count",
    "lowercase": "lower",
    "uppercase": "upper",
    "string_concat": "concat",
}


def _label(op: Any) -> str:
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(op).__name__).lower()
    return _NAMES.get(name, name) + "()"


def _reason(op: Any) -> tuple[str, str]:
    return _label(op), next((reason for types, reason in _REASONS if isinstance(op, types)), _UNKNOWN)


def _refuse(label: str, reason: str) -> NoReturn:
    raise InvalidValue("expression", label, "row-by-row", f"{label} {reason}.")


def _number(value: float) -> Any:
    """A literal that no engine takes for a decimal."""
    return ops.Cast(ops.Literal(repr(float(value)), dt.string), dt.float64)


_ZERO = _number(0)


def _null(kind: str) -> _Term:
    return _Term(ops.Literal(None, _DTYPES[kind]), kind)


def _where(condition: Any, value: Any) -> Any:
    """``value`` where the condition holds, else NULL."""
    return ops.IfElse(condition, value, ops.Literal(None, value.dtype.copy(nullable=True)))


def _clean(term: _Term) -> _Term:
    """NULL for NaN.

    It looks at exp(x), which is NaN just where x is: DuckDB decides isnan(x), for all rows at once, from the
    extremes noted in a Parquet file, and those leave NaN out.
    """
    if not term.nan:
        return term
    null = _null("number").node
    return replace(term, node=ops.IfElse(ops.IsNan(ops.Exp(term.node)), null, term.node), nan=False)


def _known(term: _Term) -> Any:
    """Whether there is a value, never NULL. (Of a float, Ibis would also ask Spark for NaN.)"""
    return ops.NotNull(ops.Equals(term.node, _ZERO) if term.kind == "number" else term.node)


def _as(kind: str, term: _Term, op: Any) -> _Term:
    if term.kind == kind:
        return term
    if term.kind == "null":
        return _null(kind)
    if kind == "number" and term.kind == "boolean":
        return _Term(ops.Cast(term.node, dt.float64), kind, bound=1.0, whole=True)
    if kind == "date" and isinstance(term.constant, str):
        try:
            day = datetime.date.fromisoformat(term.constant)
        except ValueError:
            _refuse(_label(op), "takes dates written like 2020-12-31")
        return _Term(ops.Literal(day, dt.date), kind, constant=day)
    _refuse(_label(op), f"does not take a {term.kind} for a {kind}")


def _numbers(op: Any, terms: _Terms) -> list[_Term]:
    return [_as("number", terms[child], op) for child in op.__children__]


def _alike(op: Any, terms: Sequence[_Term]) -> list[_Term]:
    """The terms as one kind, without NaN; booleans among numbers are 0 and 1."""
    kinds = {term.kind for term in terms}
    kind = next((kind for kind in _DTYPES if kind in kinds), "number")
    return [_clean(_as(kind, term, op)) for term in terms]


def _one_of(node: Any, terms: Sequence[_Term]) -> _Term:
    bound = max(term.bound for term in terms)
    return _Term(node, terms[0].kind, bound, whole=all(term.whole for term in terms))


def _column(field: Any) -> _Term:
    dtype = field.dtype
    if dtype.is_boolean() or dtype.is_string():
        return _Term(field, "boolean" if dtype.is_boolean() else "string")
    if dtype.is_integer():
        return _Term(ops.Cast(field, dt.float64), "number", bound=2.0 ** (8 * dtype.nbytes), whole=True)
    if dtype.is_floating():
        return _clean(_Term(field if dtype.is_float64() else ops.Cast(field, dt.float64), "number", nan=True))
    if dtype.is_date():
        first, last = (ops.Literal(day, dt.date) for day in (datetime.date.min, datetime.date.max))
        return _Term(_where(ops.Between(field, first, last), field), "date")
    _refuse(f"column {field.name}", f"is of a type without rules, {dtype}")


@_rule(ops.Literal)
def _literal(op: Any, terms: _Terms) -> _Term:
    value, dtype = op.value, op.dtype.copy(nullable=True)
    if value is None:
        return _Term(op, "null")
    for kind in ("boolean", "string", "date"):
        if dtype == _DTYPES[kind]:
            return _Term(ops.Literal(value, dtype), kind, constant=value)
    if not dtype.is_numeric() or math.isnan(value) or (dtype.is_integer() and abs(value) > _WHOLE):
        _refuse(
            "a literal", f"of type {dtype} must be a date, text, true, false or a number, whole up to 2**53"
        )
    number = float(value)
    return _Term(_number(number), "number", abs(number), whole=number.is_integer(), constant=number)


@_rule(ops.Pi, ops.E)
def _constant(op: Any, terms: _Terms) -> _Term:
    value = math.pi if isinstance(op, ops.Pi) else math.e
    return _Term(_number(value), "number", value, constant=value)


@_rule(ops.Alias)
def _alias(op: Any, terms: _Terms) -> _Term:
    return terms[op.arg]


@_rule(ops.Cast)
def _cast(op: Any, terms: _Terms) -> _Term:
    term, to = terms[op.arg], op.to.copy(nullable=True)
    if term.kind == "null" or to == _DTYPES[term.kind]:
        return term
    if term.kind == "boolean" and to.is_string():
        return _Term(ops.Cast(term.node, dt.string), "string")
    if term.kind in ("number", "boolean"):
        number = _clean(_as("number", term, op))
        if to.is_float64() or (number.whole and to.is_int64()):
            return number
        if number.whole and to.is_string():
            exact = _where(ops.Less(ops.Abs(number.node), _number(_WHOLE)), number.node)
            return _Term(ops.Cast(ops.Cast(exact, dt.int64), dt.string), "string")
        if to.is_int64():
            _refuse("cast()", "to int64 rounds on one engine, truncates on another; use round() or floor()")
    _refuse("cast()", f"from {op.arg.dtype} to {to} can fail or differs between engines")


@_rule(ops.Add, ops.Subtract)
def _sum(op: Any, terms: _Terms) -> _Term:
    a, b = _numbers(op, terms)
    nan = a.nan or b.nan or (a.infinite and b.infinite)
    return _Term(type(op)(a.node, b.node), "number", a.bound + b.bound, nan, a.whole and b.whole)


@_rule(ops.Multiply)
def _multiply(op: Any, terms: _Terms) -> _Term:
    return _product(*_numbers(op, terms))


def _product(a: _Term, b: _Term) -> _Term:
    nan = a.nan or b.nan or (a.infinite and not b.constant) or (b.infinite and not a.constant)
    bound = math.inf if a.infinite or b.infinite else a.bound * b.bound
    return _Term(ops.Multiply(a.node, b.node), "number", bound, nan, a.whole and b.whole)


@_rule(ops.Divide, ops.FloorDivide)
def _divide(op: Any, terms: _Terms) -> _Term:
    ratio = _ratio(*_numbers(op, terms))
    return _rounded(ops.Floor, ratio) if isinstance(op, ops.FloorDivide) else ratio


def _ratio(a: _Term, b: _Term) -> _Term:
    bound = a.bound / abs(b.constant) if b.constant and not a.infinite else math.inf
    nan = a.nan or b.nan or (a.infinite and b.infinite)
    return _Term(ops.Divide(a.node, _divisor(b)), "number", bound, nan)


def _divisor(term: _Term) -> Any:
    return term.node if term.constant else _where(ops.NotEquals(term.node, _ZERO), term.node)


@_rule(ops.Modulus)
def _modulus(op: Any, terms: _Terms) -> _Term:
    a, b = _numbers(op, terms)
    node = ops.Modulus(a.node, _divisor(b))
    return _Term(node, "number", min(a.bound, b.bound), a.nan or b.nan or a.infinite, a.whole and b.whole)


@_rule(ops.Power)
def _power(op: Any, terms: _Terms) -> _Term:
    a, b = map(_clean, _numbers(op, terms))
    if b.constant == 0.5:
        return _root(a)
    if b.constant in (1, 2, 3):
        return reduce(_product, [a] * int(b.constant))
    undefined = ops.And(ops.Equals(a.node, _ZERO), ops.Less(b.node, _ZERO))
    finite = ops.Less(ops.Abs(b.node), _number(math.inf))
    node = ops.Power(_where(ops.Not(undefined), a.node), _where(finite, b.node) if b.infinite else b.node)
    return _Term(node, "number", nan=not b.whole)


@_rule(ops.Negate, ops.Abs, ops.Sign)
def _magnitude(op: Any, terms: _Terms) -> _Term:
    (term,) = _numbers(op, terms)
    if not isinstance(op, ops.Sign):
        return replace(term, node=type(op)(term.node), constant=None)
    return _Term(ops.Cast(ops.Sign(_clean(term).node), dt.float64), "number", bound=1.0, whole=True)


@_rule(ops.Floor, ops.Ceil, ops.Round)
def _round(op: Any, terms: _Terms) -> _Term:
    digits = terms[op.digits].constant if isinstance(op, ops.Round) else 0
    if digits is None or not 0 <= digits <= 15:
        _refuse("round()", "takes 0 to 15 digits; for tens write (x / 10).round() * 10")
    return _rounded(type(op), _as("number", terms[op.arg], op), 10.0**digits)


def _rounded(operation: Any, term: _Term, scale: float = 1.0) -> _Term:
    """Rounded to multiples of 1/scale, where there is a fraction; so the engine's int64 cannot overflow."""
    term = _clean(term)
    if term.whole:
        return term
    small = term.bound * scale < _FRACTIONS
    node = term.node if scale == 1 else ops.Multiply(term.node, _number(scale))
    node = node if small else _where(ops.Less(ops.Abs(node), _number(_FRACTIONS)), node)
    node = ops.Round(node, ops.Literal(0, dt.int8)) if operation is ops.Round else operation(node)
    node = ops.Cast(node, dt.float64)
    node = node if scale == 1 else ops.Divide(node, _number(scale))
    node = node if small else ops.Coalesce((node, term.node))
    return _Term(node, "number", term.bound + 1, whole=scale == 1)


@_rule(ops.Sqrt)
def _sqrt(op: Any, terms: _Terms) -> _Term:
    return _root(*_numbers(op, terms))


def _root(term: _Term) -> _Term:
    node = ops.Sqrt(_where(ops.GreaterEqual(term.node, _ZERO), term.node))
    return _Term(node, "number", math.sqrt(term.bound), term.nan)


@_rule(ops.Exp)
def _exp(op: Any, terms: _Terms) -> _Term:
    (term,) = _numbers(op, terms)
    bound = math.exp(term.bound) if term.bound < 700 else math.inf
    return _Term(ops.Exp(term.node), "number", bound, term.nan)


@_rule(ops.Ln, ops.Log2, ops.Log10, ops.Log)
def _log(op: Any, terms: _Terms) -> _Term:
    term, *bases = _numbers(op, terms)
    if not bases:
        return _logarithm(ops.Ln if isinstance(op, ops.Log) else type(op), term)
    if bases[0].constant in (2, 10):
        return _logarithm(ops.Log2 if bases[0].constant == 2 else ops.Log10, term)
    return _ratio(_logarithm(ops.Ln, term), _logarithm(ops.Ln, bases[0]))


def _logarithm(operation: Any, term: _Term) -> _Term:
    node = operation(_where(ops.Greater(term.node, _ZERO), term.node))
    return _Term(node, "number", math.inf if term.infinite else 1100.0, term.nan)


@_rule(ops.Equals, ops.NotEquals, ops.Less, ops.LessEqual, ops.Greater, ops.GreaterEqual, ops.IdenticalTo)
def _compare(op: Any, terms: _Terms) -> _Term:
    a, b = _alike(op, [terms[op.left], terms[op.right]])
    return _Term(type(op)(a.node, b.node), "boolean")


@_rule(ops.Between)
def _between(op: Any, terms: _Terms) -> _Term:
    a, low, high = _alike(op, [terms[child] for child in op.__children__])
    return _Term(ops.And(ops.GreaterEqual(a.node, low.node), ops.LessEqual(a.node, high.node)), "boolean")


@_rule(ops.InValues)
def _among(op: Any, terms: _Terms) -> _Term:
    value, *options = _alike(op, [terms[child] for child in op.__children__])
    return _Term(ops.InValues(value.node, tuple(option.node for option in options)), "boolean")


@_rule(ops.And, ops.Or, ops.Xor, ops.Not)
def _logic(op: Any, terms: _Terms) -> _Term:
    nodes = [_as("boolean", terms[child], op).node for child in op.__children__]
    return _Term((ops.NotEquals if isinstance(op, ops.Xor) else type(op))(*nodes), "boolean")


@_rule(ops.IsNull, ops.NotNull, ops.IsNan, ops.IsInf)
def _missing(op: Any, terms: _Terms) -> _Term:
    (term,) = _alike(op, [terms[op.arg]])
    if isinstance(op, ops.IsInf):
        return _Term(ops.Equals(ops.Abs(term.node), _number(math.inf)), "boolean")
    return _Term(_known(term) if isinstance(op, ops.NotNull) else ops.Not(_known(term)), "boolean")


@_rule(ops.Coalesce)
def _coalesce(op: Any, terms: _Terms) -> _Term:
    parts = _alike(op, [terms[child] for child in op.__children__])
    return _one_of(ops.Coalesce(tuple(part.node for part in parts)), parts)


@_rule(ops.NullIf)
def _nullif(op: Any, terms: _Terms) -> _Term:
    a, b = _alike(op, [terms[op.arg], terms[op.null_if_expr]])
    return _one_of(ops.IfElse(ops.Equals(a.node, b.node), _null(a.kind).node, a.node), [a])


@_rule(ops.IfElse)
def _ifelse(op: Any, terms: _Terms) -> _Term:
    parts = _alike(op, [terms[op.true_expr], terms[op.false_null_expr]])
    condition = _as("boolean", terms[op.bool_expr], op)
    return _one_of(ops.IfElse(condition.node, *(part.node for part in parts)), parts)


@_rule(ops.SearchedCase, ops.SimpleCase)
def _cases(op: Any, terms: _Terms) -> _Term:
    cases = [terms[case] for case in op.cases]
    if isinstance(op, ops.SimpleCase):
        base, *cases = _alike(op, [terms[op.base], *cases])
        conditions = [ops.Equals(base.node, case.node) for case in cases]
    else:
        conditions = [_as("boolean", case, op).node for case in cases]
    parts = _alike(op, [terms[part] for part in (*op.results, op.default)])
    *results, default = (part.node for part in parts)
    return _one_of(ops.SearchedCase(tuple(conditions), tuple(results), default), parts)


@_rule(ops.Least, ops.Greatest)
def _extreme(op: Any, terms: _Terms) -> _Term:
    parts = _alike(op, [terms[child] for child in op.__children__])
    node = type(op)(tuple(part.node for part in parts)) if len(parts) > 1 else parts[0].node
    return _one_of(_unless_missing(node, parts), parts)


@_rule(ops.Clip)
def _clip(op: Any, terms: _Terms) -> _Term:
    parts = [_clean(part) for part in _numbers(op, terms)]
    node = parts[0].node
    if op.lower is not None:
        node = ops.Greatest((node, parts[1].node))
    if op.upper is not None:
        node = ops.Least((node, parts[-1].node))
    limits = parts[1:] if len(parts) == 3 else parts
    return replace(_one_of(_unless_missing(node, parts), parts), bound=max(part.bound for part in limits))


def _unless_missing(node: Any, parts: Sequence[_Term]) -> Any:
    """NULL if one of the parts is: engines' own least and greatest skip it."""
    known = [_known(part) for part in parts if part.constant is None]
    return _where(reduce(ops.And, known), node) if known else node


@_rule(ops.Strip, ops.StartsWith, ops.EndsWith, ops.StringContains)
def _text(op: Any, terms: _Terms) -> _Term:
    nodes = [_as("string", terms[child], op).node for child in op.__children__]
    return _Term(type(op)(*nodes), "string" if isinstance(op, ops.Strip) else "boolean")


@_rule(ops.Substring, ops.StringSlice)
def _slice(op: Any, terms: _Terms) -> _Term:
    text, *ends = op.args
    constants = [terms[end].constant for end in ends if end is not None]
    if not all(constant is not None and 0 <= constant <= 10**6 for constant in constants):
        _refuse("a slice of text", "takes positions from 0 to 1000000")
    start, stop = (None if end is None else int(terms[end].constant) for end in ends)
    if isinstance(op, ops.StringSlice) and stop is not None:
        stop = max(stop - (start or 0), 0)
    return _Term(ops.Substring(_as("string", terms[text], op).node, start or 0, stop), "string")


_DATE_PARTS = (ops.ExtractYear, ops.ExtractQuarter, ops.ExtractMonth, ops.ExtractWeekOfYear, ops.ExtractDay)


@_rule(ops.StringLength, *_DATE_PARTS, ops.ExtractDayOfYear, ops.DayOfWeekIndex)
def _count(op: Any, terms: _Terms) -> _Term:
    part = _as("string" if isinstance(op, ops.StringLength) else "date", terms[op.arg], op)
    return _Term(ops.Cast(type(op)(part.node), dt.float64), "number", bound=2.0**32, whole=True)


@_rule(ops.DateDelta)
def _days(op: Any, terms: _Terms) -> _Term:
    if terms[op.part].constant != "day":
        _refuse("delta()", "counts alike on all engines with unit='day' only")
    a, b = (_as("date", terms[end], op).node for end in (op.left, op.right))
    return _Term(ops.Cast(ops.DateDelta(op.part, a, b), dt.float64), "number", bound=2.0**32, whole=True)
