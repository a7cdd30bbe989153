"""Partition: which teacher learns from which rows.

**Relation.** Every unit, or every row where rows are protected, draws its teacher by itself, uniformly and
independently of all others. So the partition of the remaining units has the same distribution whether one
more unit is there or not: under ``add_remove`` one unit belongs to one teacher, and no other teacher's rows
change. Under ``replace_one`` the unit that replaces another draws again, and may be coupled to draw the
same teacher: again one teacher's rows change. A shuffled range that is cut into equal parts has neither
property: one row more moves the borders of all parts.

All rows of a unit go to the same teacher, however many they are. So a unit moves one vote.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.data.given import places
from tacit.data.units import unit_numbers
from tacit.randomness import Source, uniform

__all__ = ["drawn_teachers", "strictest_groups"]

Int64 = NDArray[np.int64]


def drawn_teachers(units: Int64, groups: Int64, sizes: Sequence[int], source: Source) -> Int64:
    """The teacher of each row: a uniform draw for each unit among the teachers of its group.

    ``units`` numbers the unit of each row from 0, ``groups`` its group, and −1 in either is a row that nobody
    learns from; ``sizes`` are the numbers of teachers of the groups, which are numbered one group after the
    other.

    >>> units, group = np.array([0, 0, 1, -1]), np.zeros(4, dtype=np.int64)
    >>> teachers = drawn_teachers(units, group, [1000], Source(random_state=1))
    >>> bool(teachers[0] == teachers[1] != teachers[2]), int(teachers[3])
    (True, -1)
    """
    teachers = np.full(len(units), -1, dtype=np.int64)
    if not len(units):
        return teachers
    count = int(units.max(initial=-1)) + 1
    first = 0
    for group, size in enumerate(sizes):
        drawn = uniform(source, size, count)
        mine = (groups == group) & (units >= 0)
        teachers[mine] = first + drawn[units[mine]]
        first += size
    return teachers


def strictest_groups(units: NDArray[Any] | None, groups: NDArray[Any], declared: Sequence[Any]) -> Int64:
    """The place of each row's group among those ``declared``, the strictest first; −1 for none of them.

    A unit whose rows name several groups belongs to the strictest of them in all its rows, and to none if
    one row names a group that was not declared: so all rows of a unit stay with one teacher.

    >>> strictest_groups(np.array([1, 1, 2]), np.array(["lax", "strict", "lax"]), ["strict", "lax"]).tolist()
    [0, 0, 1]
    """
    found = places(groups, declared)
    if units is None:
        return found
    numbered = unit_numbers(units)
    least = np.full(int(numbered.max(initial=-1)) + 1, len(declared), dtype=np.int64)
    named = numbered >= 0
    np.minimum.at(least, numbered[named], found[named])
    strict = np.full(len(found), -1, dtype=np.int64)
    strict[named] = least[numbered[named]]
    return strict
