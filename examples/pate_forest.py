"""PATE with random forests: 250 forests vote, and one forest learns what they agree about.

The private rows are the training rows of Adult, the public ones a part of its test rows, whose incomes nobody
looks at. Each person is drawn by one of 250 teachers, a small forest each. The teachers vote on public
rows, noise is added to the votes, and the answers teach a student, which is all that is kept; it is tested
on the other test rows.

Prints the plan, the guarantee, how often each class was answered and the accuracy; writes public.csv,
study.db and student.tacit to out/. Takes about half a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier

import tacit
from tacit import datasets, jobs

PUBLIC = 8000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teachers", type=int, default=250)
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--random-state", type=int)
    given = parser.parse_args()
    out = Path("out")
    out.mkdir(exist_ok=True)
    files = datasets.adult()
    others = pd.read_csv(files.test)
    others[:PUBLIC].drop(columns="income").to_csv(out / "public.csv", index=False)
    tested = others[PUBLIC:]

    (out / "study.db").unlink(missing_ok=True)
    with tacit.Ledger.open(out / "study.db", budget=tacit.Budget(given.epsilon, 1e-5)) as ledger:
        with jobs.plan_pate_fit(
            files.train, schema=files.schema, target="income", queries=out / "public.csv", ledger=ledger,
            teacher=RandomForestClassifier(20), student=RandomForestClassifier(200),
            n_teachers=given.teachers, epsilon=given.epsilon, delta=1e-5,
            out=out / "student.tacit", overwrite=True, random_state=given.random_state,
        ) as job:  # fmt: skip
            print(job.plan, "\n")
            job.afford()
            made = job.run()
        print(made.guarantee, "\n")
    for each in made.model[-1].answer_rates():
        print(f"{each.label}: {each.asked} asked, {each.answered} answered ({each.rate:.0%})")
    student = tacit.load(out / "student.tacit")
    right = np.mean(student.predict(tested) == tested["income"])
    print(f"\nThe student is right for {right:.1%} of {len(tested)} other people.")


if __name__ == "__main__":
    main()
