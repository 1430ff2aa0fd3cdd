"""The grammar of POPE's studies: the paper's table, and one's own model with several sources of views."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from onesdaug.common.registry import VIEWS
from onesdaug.studies.kinds.pope.worse import WORSE
from onesdaug.studies.spec import BASELINE, TUNED, SpecModel, Study

LLAVA = "llava-hf/llava-1.5-7b-hf"  # the paper's model


class PopeRow(SpecModel):
    """A row of the paper's table."""

    method: str
    k: int = 0
    vcd: bool = False
    accuracy: float
    f1: float


class ViewsRow(SpecModel):
    """One way of making views: `generated` by every generator of the run, `shape`, or a source of views by name.

    `tuned` draws nothing of its own: of the rows it names, the one and the weight of its views that are best on the
    photographs that the threshold is set on, or no views.
    """

    id: str
    label: str
    views: str
    preset: str = "vlm"
    config: dict[str, Any] = Field({})  # settings of the operator that differ from the preset
    among: tuple[str, ...] = ()
    to_choose: bool = False  # only a candidate of tuned rows, not in the table

    @model_validator(mode="after")
    def _known(self) -> ViewsRow:
        if self.views not in ("generated", "shape", TUNED):
            VIEWS.check(self.views)
        if (self.views == TUNED) != bool(self.among):
            raise ValueError(f'row {self.id}: `views = "tuned"` and `among`, the rows to choose from, go together')
        return self


class PopeClaim(SpecModel):
    """The paper says that so many views, each a vote, raise the accuracy on a split."""

    says: str
    row: str
    k: int
    split: str = "adversarial"


class Worse(SpecModel):
    """Rows that are also asked about photographs made worse: kinds with their strengths."""

    rows: tuple[str, ...]
    k: int = 4
    kinds: dict[str, tuple[float, ...]]

    @model_validator(mode="after")
    def _known(self) -> Worse:
        if unknown := sorted(self.kinds.keys() - WORSE.keys()):
            raise ValueError(f"no way of making photographs worse is called {', '.join(unknown)}: {', '.join(WORSE)}")
        return self


class PopeStudy(Study):
    """With `rows`: a model of one's own that gives margins, asked about each picture once for all the questions."""

    pope: tuple[PopeRow, ...] = ()
    model: str = ""  # the vision-language model
    questions: tuple[str, ...] | str = ""  # files in ROOT/pope
    images: str = "pope/images.zip"  # of studies with rows: a folder or a zip file under ROOT
    calibrate: int = Field(100, ge=1)  # the first so many photographs: threshold and tuned rows are set on them
    counts: tuple[int, ...] = (1, 2, 4)  # numbers of views
    batch_size: int | None = Field(None, ge=1)  # pictures per call of the model; else all of one question
    rows: tuple[ViewsRow, ...] = ()
    claims: tuple[PopeClaim, ...] = ()
    worse: Worse | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return (self.questions,) if isinstance(self.questions, str) else self.questions

    @property
    def by_id(self) -> dict[str, ViewsRow]:
        return {row.id: row for row in self.rows}

    @model_validator(mode="after")
    def _refer_to_rows(self) -> PopeStudy:
        named = [name for row in self.rows for name in row.among]
        named += [claim.row for claim in self.claims] + list(self.worse.rows if self.worse else ())
        if unknown := sorted(set(named) - self.by_id.keys()):
            raise ValueError(f"no row called {', '.join(unknown)}; rows are {', '.join(self.by_id)}")
        for row in self.rows:
            kinds = {self.by_id[name].views for name in row.among}
            if row.id == BASELINE or TUNED in kinds or len(kinds) > 1:
                raise ValueError(f"row {row.id}: a tuned row chooses among rows of one source; {BASELINE} is no views")
        if self.rows and not self.model:
            raise ValueError("say with `model` who is asked")
        return self
