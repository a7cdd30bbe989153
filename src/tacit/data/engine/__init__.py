"""Questions to an engine that may be somebody else's, so that no row decides whether it answers.

``stored``
    which Ibis tables are read, and where.
``rowwise``
    expressions over their columns, made row by row and total, or refused.
``pruning``
    queries without the columns that nobody reads.
``results``
    what a query returns, collected or in blocks of a fixed number of rows.
``silence``
    what the engine prints and logs, withheld.
"""

__all__: list[str] = []
