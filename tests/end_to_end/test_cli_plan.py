"""``tacit plan`` as its users run it: a process, its output and its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Run, commands
from tacit import accounting, events
from tacit.cli import main
from tacit.training.plan import Plan

TRAINING = ["--population", "60000", "--batch-size", "256", "--epochs", "15", "--delta", "1e-5"]
PNG = b"\x89PNG\r\n\x1a\n"


def tacit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, "-m", "tacit.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``tacit`` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return commands(monkeypatch, capsys)


def answer(run: Run, *arguments: str) -> dict[str, object]:
    result = run("plan", *arguments, "--format", "json").json
    assert isinstance(result, dict)
    return result


def test_training_finds_noise_that_spends_no_more_than_asked(run: Run) -> None:
    plan = answer(run, *TRAINING, "--epsilon", "2")
    assert plan["steps"] == 3516  # 15 · 60000 / 256 = 3515.6…
    noise = plan["noise_multiplier"]
    assert isinstance(noise, float)
    whole = events.Repeat(events.PoissonSampled(256 / 60000, events.Gaussian(noise)), 3516)
    spent = accounting.epsilon(whole, 1e-5)
    assert plan["epsilon"] == spent
    assert 0 <= 2 - spent < 0.002
    assert plan["slack"] == 2 - spent
    rows = plan["spend"]
    assert isinstance(rows, list)
    spends = [row["epsilon"] for row in rows]
    assert len(rows) == 15
    assert spends == sorted(spends)
    assert spends[-1] == spent


def test_noise_multiplier_finds_epsilon_and_long_runs_have_few_rows(run: Run) -> None:
    arguments = "--population 1000 --batch-size 100 --epochs 97 --delta 1e-5 --noise-multiplier 3"
    plan = answer(run, *arguments.split())
    rows = plan["spend"]
    assert plan["target"] is None
    assert isinstance(rows, list)
    assert 15 <= len(rows) <= 22
    assert rows[-1]["epoch"] == 97


def test_one_epoch_has_the_steps_of_the_trainer(run: Run) -> None:
    """60000 / 256 = 234.375: the nearest, for the command as for the run it plans."""
    arguments = "--population 60000 --batch-size 256 --epochs 1 --delta 1e-5 --noise-multiplier 1"
    planned = answer(run, *arguments.split())
    plan = Plan(population=60000, batch_size=256, epochs=1, delta=1e-5, noise_multiplier=1.0)
    assert planned["steps"] == plan.steps == plan.steps_per_epoch == 234
    assert planned["epsilon"] == plan.epsilon
    assert planned["spend"] == [{"epoch": 1, "steps": 234, "epsilon": plan.epsilon}]


def test_planning_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'safetensors'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import tacit.training.plan, tacit.cli\n"
        "assert tacit.training.Plan is tacit.training.plan.Plan\n"
        "try:\n"
        "    tacit.training.Trainer\n"
        "except tacit.errors.MissingExtra as error:\n"
        "    assert error.__cause__.name == 'torch', error\n"
        "else:\n"
        "    raise AssertionError('torch was found')\n"
        f"sys.argv = ['tacit', 'plan', *{TRAINING!r}, '--epsilon', '2', '--format', 'json']\n"
        "sys.argv += ['--plot', 'plan.png']\n"
        "tacit.cli.main()\n"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout)["steps"] == 3516
    assert (tmp_path / "plan.png").read_bytes().startswith(PNG)


def test_replace_one_costs_more_noise(run: Run) -> None:
    add_remove = answer(run, *TRAINING, "--epsilon", "2")
    replace_one = answer(run, *TRAINING, "--epsilon", "2", "--relation", "replace_one")
    assert replace_one["noise_per_clip_norm"] > 1.05 * add_remove["noise_per_clip_norm"]  # type: ignore[operator]


def test_tables_mark_the_tightest_and_the_plot_is_drawn(run: Run, tmp_path: Path) -> None:
    shown = run("plan", *TRAINING, "--epsilon", "2", "--plot", "plan.png").good().out
    assert "rounded up" in shown
    (marked,) = [line for line in shown.splitlines() if "tightest" in line]
    assert "pld" in marked
    assert (tmp_path / "plan.png").read_bytes().startswith(PNG)


def test_figure_three(run: Run, tmp_path: Path) -> None:
    arguments = "--compare --sigma 1 --sensitivity 0.01 --steps 1000 --delta 1e-5 --plot f.png --format json"
    result = run("plan", *arguments.split()).json
    at_end = result["accountants"]
    assert at_end["moments"] == pytest.approx(1.5674, abs=1e-4)  # ρ + 2√(ρ ln 1/δ), ρ = 0.05
    assert at_end["pld"] < at_end["rdp"] < at_end["moments"] < at_end["advanced"] < at_end["basic"]
    assert at_end["zcdp"] == pytest.approx(at_end["rdp"], rel=1e-3)
    assert result["grid"][0] == 1
    assert result["grid"][-1] == 1000
    for name, curve in result["curves"].items():
        assert curve[-1] == at_end[name]
    assert (tmp_path / "f.png").read_bytes().startswith(PNG)


def test_steps_known_by_epsilon_and_delta_alone(run: Run) -> None:
    arguments = "--compare --step-epsilon 0.1 --step-delta 1e-5 --steps 200 --delta 1e-2"
    accountants = answer(run, *arguments.split())["accountants"]
    assert isinstance(accountants, dict)
    assert accountants["basic"] == pytest.approx(20)
    assert min(accountants.values()) < 4
    assert "(20, 0.002)" in run("plan", *arguments.split()).good().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--delta 1e-5", "needs --population, --batch-size, --epochs"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 1e-5", "either --epsilon or --noise-multiplier"),
        ("--population 10 --batch-size 20 --epochs 1 --delta 1e-5 --epsilon 1", "batch_size must be at most"),
        ("--population 10 --batch-size 2 --epochs 0 --delta 1e-5 --epsilon 1", "epochs must be"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 1e-5 --epsilon -1", "epsilon must be"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 1e-5 --epsilon 0", "epsilon must be"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 1e-5 --noise-multiplier 0", "multiplier must be"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 0 --epsilon 1", "delta must be"),
        ("--population 10 --batch-size 2 --epochs 1 --delta 1e-5 --epsilon 1 --steps 5", "--steps is for a"),
        ("--population 10 --batch-size 2 --epochs 1 --delta .1 --epsilon 1 --relation x", "relation must be"),
        ("--compare --delta 1e-5", "--compare needs --steps"),
        ("--compare --steps 5 --delta 1e-5", "one description of the step, got none"),
        ("--compare --steps 5 --delta 1e-5 --sigma 1", "needs --sensitivity"),
        ("--compare --steps 5 --delta 1e-5 --sigma 1 --sensitivity 0", "sensitivity must be"),
        ("--compare --steps 5 --delta 1e-5 --step-delta 1e-7", "needs --step-epsilon"),
        ("--compare --steps 5 --delta 1e-5 --sigma 1 --step-epsilon 1", "one description of the step"),
        ("--compare --steps 5 --delta 1e-5 --noise-multiplier 1 --epochs 3", "--epochs is for a training"),
        ("--compare --steps 5 --delta 1e-5 --step-epsilon 1 --step-delta 1e-3", "No accountant certifies"),
        ("--compare --steps 5 --delta 1e-5 --noise-multiplier 1 --plot x.txt", "known ending"),
        ("--compare --steps 5 --delta 1e-5 --noise-multiplier 1 --plot no/such.png", "cannot be written"),
    ],
)
def test_wrong_combinations_are_one_clear_line(
    arguments: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tacit", "plan", *arguments.split()])
    with pytest.raises(SystemExit) as exit:
        main()
    shown = capsys.readouterr()
    assert exit.value.code == 2
    assert shown.out == ""
    assert message in shown.err
    assert shown.err.startswith("tacit: ")
    assert shown.err.count("\n") == 1


def test_an_error_of_a_process_has_no_traceback() -> None:
    process = tacit("plan", "--delta", "1e-5")
    assert process.returncode == 2
    assert process.stderr.count("\n") == 1


def test_version_and_help() -> None:
    assert tacit("--version").stdout.startswith("tacit 0.")
    shown = tacit("--help")
    assert shown.returncode == 0
    assert "plan" in shown.stdout
    assert "ledger" in shown.stdout


def test_interrupt_is_exit_code_130() -> None:
    code = (
        "import sys, tacit.report as r, tacit.cli as c\n"
        "def stop(*plan, **options): raise KeyboardInterrupt\n"
        "r.training_cost = stop\n"
        f"sys.argv = ['tacit', 'plan', *{TRAINING!r}, '--epsilon', '2']\n"
        "c.main()\n"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 130
    assert "Traceback" not in process.stderr
