"""Whole jobs, from a file to a release: :func:`query`, :func:`fit`, :func:`train`, :func:`synthesize`,
:func:`evaluate`; and
:func:`report`, :func:`predict` and :func:`audit_scores`, which need no private rows, and :func:`attack`,
which is for the curator alone.

Every job that is charged takes the same road. What is public is checked first: a wrong column costs nothing.
Then the ledger is charged, durably, and only then is a row read. What was paid for is not lost: a model whose
file cannot be written at last is written elsewhere, and a warning says where. The command ``tacit`` does the
same, because it calls these functions.

Each ``plan_…`` takes the same arguments and does everything but spend: its job knows its noise and its price
(``dues``, ``balances()``), refuses what cannot be paid (``afford()``), and is done by ``run()``.

>>> import pathlib, tempfile
>>> import tacit
>>> folder = pathlib.Path(tempfile.mkdtemp())
>>> _ = (folder / "ages.csv").write_text("age\\n" + "41\\n" * 500)
>>> schema = tacit.Schema({"age": tacit.Column("integer", bounds=(0, 120))})
>>> ledger = tacit.Ledger.open(folder / "study.db", budget=tacit.Budget(epsilon=1.0))
>>> with plan_query(folder / "ages.csv", ["mean(age)"], schema=schema, ledger=ledger, epsilon=0.5) as job:
...     [(balance.spent, balance.after) for balance in job.balances()]
[(0.0, 0.5)]
>>> answered = query(folder / "ages.csv", ["mean(age)"], schema=schema, ledger=ledger, epsilon=0.5)
>>> abs(answered.releases[0].value - 41) < 20, ledger.spent().epsilon
(True, 0.5)
>>> ledger.close()
"""

from tacit.jobs.asking import Answered, QueryJob, plan_query, query
from tacit.jobs.attacking import Attacked, attack
from tacit.jobs.auditing import audit_canaries, audit_scores
from tacit.jobs.checking import Checked, curator_check
from tacit.jobs.comparing import Compared, Measured, compare
from tacit.jobs.fitting import FitJob, Fitted, fit, plan_fit
from tacit.jobs.job import Balance, Due, Job, Refused
from tacit.jobs.local import (
    Randomized,
    RandomizeJob,
    local_estimate,
    local_randomize,
    plan_local_randomize,
)
from tacit.jobs.pate import (
    AnsweredVotes,
    PateFitJob,
    VotesJob,
    pate_answer,
    pate_fit,
    plan_pate_answer,
    plan_pate_fit,
)
from tacit.jobs.predicting import Predicted, predict
from tacit.jobs.reporting import report
from tacit.jobs.synthesizing import Synthesized, SynthesizeJob, plan_synthesize, synthesize
from tacit.jobs.testing import EvaluateJob, evaluate, plan_evaluate
from tacit.jobs.training import plan_train, train

__all__ = [
    "Answered",
    "AnsweredVotes",
    "Attacked",
    "Balance",
    "Checked",
    "Compared",
    "Due",
    "EvaluateJob",
    "FitJob",
    "Fitted",
    "Job",
    "Measured",
    "PateFitJob",
    "Predicted",
    "QueryJob",
    "RandomizeJob",
    "Randomized",
    "Refused",
    "SynthesizeJob",
    "Synthesized",
    "VotesJob",
    "attack",
    "audit_canaries",
    "audit_scores",
    "compare",
    "curator_check",
    "evaluate",
    "fit",
    "local_estimate",
    "local_randomize",
    "pate_answer",
    "pate_fit",
    "plan_evaluate",
    "plan_fit",
    "plan_local_randomize",
    "plan_pate_answer",
    "plan_pate_fit",
    "plan_query",
    "plan_synthesize",
    "plan_train",
    "predict",
    "query",
    "report",
    "synthesize",
    "train",
]
