"""What the bodies of requests hold. Whether their values make sense is decided by the actions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Fit",
    "Measurement",
    "NewDataset",
    "NewGrant",
    "NewToken",
    "NewUser",
    "Questions",
    "Synthesis",
    "Training",
    "body_of",
]

Name = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="A user or a dataset.")]
Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, description="ε.")]
Delta = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False, description="δ.")]
Text = Annotated[str, Field(max_length=10_000)]
Label = Annotated[str, Field(min_length=1, max_length=200)]
Columns = Annotated[list[Annotated[str, Field(max_length=500)]], Field(max_length=1000)]


class Body(BaseModel):
    """A body refuses what it does not know."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewUser(Body):
    """A user and the role."""

    name: Name
    role: Literal["curator", "analyst", "auditor"]


class NewToken(Body):
    """How long a token is to hold."""

    days: Annotated[float, Field(gt=0, le=366, allow_inf_nan=False)] = 30.0


class NewDataset(Body):
    """A dataset: where its rows are, what is public about them, its budget."""

    name: Name
    source: Annotated[
        str,
        Field(
            max_length=500, description="A file in the folder of data, a pattern, or spark:database.table."
        ),
    ]
    rules: Annotated[
        str, Field(max_length=900_000, alias="schema", description="The schema, as TOML, with its unit.")
    ]
    epsilon: Epsilon
    delta: Delta = 0.0
    relation: Literal["add_remove", "replace_one"] | None = None
    filter: Literal["basic", "renyi", "gaussian"] | None = None


class NewGrant(Body):
    """What an analyst may spend on a dataset, and on what."""

    analyst: Name
    dataset: Name
    epsilon: Epsilon
    delta: Delta = 0.0
    statistics: Annotated[list[Text], Field(max_length=100)] | None = None
    models: Annotated[list[Text], Field(max_length=100)] = []
    days: Annotated[float, Field(gt=0, le=3660, allow_inf_nan=False)] | None = None


class Priced(Body):
    """Something that is paid for from a grant: the newest one unless it is named."""

    epsilon: Epsilon
    delta: Delta = 0.0
    grant: Annotated[str, Field(max_length=64)] | None = None


class Questions(Priced):
    """Questions in the text grammar or as values, which share ε and δ."""

    questions: Annotated[list[Text | dict[str, Any]], Field(min_length=1, max_length=100)]
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    population: Annotated[int, Field(ge=1, le=10**12, description="A guess, for the plan.")] | None = None


class Fit(Priced):
    """A model to fit: see ``tacit fit``."""

    kind: Literal["fit"]
    model: Text
    target: Text | None = None
    noise: Text | None = None
    n_clusters: Annotated[int, Field(ge=1, le=10_000)] | None = None
    n_components: Annotated[int, Field(ge=1, le=10_000)] | None = None
    interval_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    buy_population: bool | None = None
    norm: Annotated[float, Field(gt=0, le=1e12)] | None = None
    exclude: Columns | None = None
    label: Label | None = None
    test_share: Annotated[float, Field(gt=0, lt=1, description="Rows set aside for a test.")] | None = None
    test_epsilon: Epsilon | None = None
    groups_by: Columns | None = None


class Training(Priced):
    """A network to train on the rows: see ``tacit train``. A grant allows it as ``network``."""

    kind: Literal["train"]
    architecture: Literal["linear", "mlp", "autoencoder"]
    target: Text
    population: Annotated[int, Field(ge=1, le=10**9, description="As far as is public.")] | None = None
    exclude: Columns | None = None
    epochs: Annotated[float, Field(gt=0, le=10_000)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    lr: Annotated[float, Field(gt=0, le=1e6)] | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    optimizer: Literal["sgd", "adam", "adamw"] | None = None
    clip_norm: Annotated[float, Field(gt=0, le=1e9)] | None = None
    clipping: Text | None = None
    average: Annotated[float, Field(gt=0, lt=1)] | Text | None = None
    sampling: Text | None = None
    noise: Text | None = None
    bands: Annotated[int, Field(ge=1, le=10_000)] | None = None
    label: Label | None = None


class Measurement(Priced):
    """A model of an earlier request, measured on the rows. A grant allows it as ``evaluation``."""

    kind: Literal["evaluate"]
    request: Annotated[str, Field(pattern="^[0-9a-f]{32}$", description="The request that made the model.")]
    groups_by: Columns | None = None
    label: Label | None = None


class Synthesis(Priced):
    """A synthetic table to make: see ``tacit synthesize``."""

    kind: Literal["synthesize"]
    method: Text | None = None
    rows: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    bins: Annotated[int, Field(ge=2, le=10_000)] | None = None
    exclude: Columns | None = None
    rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    label: Label | None = None


def body_of(body: BaseModel, *without: str) -> dict[str, Any]:
    """What a body says, without what it leaves out or calls null."""
    said = body.model_dump(by_alias=True, exclude_none=True)
    return {name: value for name, value in said.items() if name not in without}
