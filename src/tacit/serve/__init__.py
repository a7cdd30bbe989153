"""The curator's service: one party holds the data and answers for the budget, others ask and never see a row.

From the top down: ``http`` takes requests and gives answers, and nothing more; ``client`` is the other end of
it, :func:`tacit.connect`; ``actions`` are what a caller can do, plain functions that a page can call as well;
``carrying`` carries a request out, and ``worker`` does that in other processes; ``access`` says who may
do what; ``service`` is an open service; ``store`` is what it remembers.

What is private stays so by the jobs and the ledger below, which the service calls and does not repeat. Its
own promises are these:

- *A budget is never overspent.* An analyst's grant is an allowance of the ledger
  (:class:`tacit.ledger.Allowance`): both limits are compared in the transaction that charges.
- *A request is charged once and answered once.* Its id is the run that the charge pays for. A request that is
  repeated with the same key is answered from the stored release. If whoever carried it out was killed after
  the charge, it is computed again without another charge, and at most one of all attempts can store its
  release: nobody sees two of them.
- *An answer tells nothing but the release.* What is refused before the charge is refused from public facts;
  what fails after it fails with one sentence, always the same.

``docs/service.md`` says what the times of answers tell.
"""

__all__: list[str] = []
