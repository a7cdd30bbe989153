"""What the service remembers besides the ledger: who may do what, what was asked, and a log of both.

``database`` opens it and gives out transactions, ``tables`` are its tables, ``log`` appends to the chained
log, ``people`` keeps users and tokens, ``holdings`` datasets and grants, ``requests`` what was asked for and
what became of it. Budgets live in the ledger, and nowhere here.
"""

__all__: list[str] = []
