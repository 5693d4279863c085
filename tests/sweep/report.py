"""What a sweep found: per operator and stage, as text and as a page of the documentation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.sweep.judging import (
    ABSENT,
    CORRECT,
    DECOMPOSED,
    EAGER_FAILS,
    ERROR,
    EXPORT,
    IN_PLACE,
    NOT_REACHED,
    REFUSED,
    SEVERITY,
    STAGES,
    WRONG,
    Outcome,
)

VERDICTS = (CORRECT, REFUSED, WRONG, ERROR, NOT_REACHED, EAGER_FAILS, ABSENT)
JUDGED = (EXPORT, DECOMPOSED, IN_PLACE)  # descriptions and layouts are reported only
ENOUGH = 97.0  # per cent of the operators must be fully correct


@dataclass
class OperatorReport:
    """One operator: its outcomes at all stages."""

    name: str
    dtype: str
    seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)

    def at(self, stage: str) -> list[Outcome]:
        """The outcomes of a stage."""
        return [outcome for outcome in self.outcomes if outcome.stage == stage]

    def verdict(self, stage: str) -> str:
        """The worst that happened at a stage; a later stage is not better than export."""
        missing = ABSENT if stage == IN_PLACE else EAGER_FAILS
        worst = max((outcome.verdict for outcome in self.at(stage)), key=SEVERITY.index, default=missing)
        if stage not in (EXPORT, IN_PLACE) and worst in (EAGER_FAILS, CORRECT):
            exported = self.verdict(EXPORT)
            return exported if exported in (EAGER_FAILS, CORRECT) else NOT_REACHED
        return worst

    def bad(self, stage: str) -> list[Outcome]:
        """The outcomes that made a verdict that is not a good one."""
        verdict = self.verdict(stage)
        return [outcome for outcome in self.at(stage) if outcome.verdict == verdict]

    def as_json(self) -> dict[str, Any]:
        """Plain data: all that is not correct, and the counts."""
        counts = Counter((outcome.stage, outcome.verdict) for outcome in self.outcomes)
        return {
            "name": self.name,
            "dtype": self.dtype,
            "seconds": round(self.seconds, 2),
            "verdicts": {stage: self.verdict(stage) for stage in STAGES},
            "counts": {f"{stage} {verdict}": count for (stage, verdict), count in counts.items()},
            "problems": [asdict(outcome) for outcome in self.outcomes if outcome.verdict != CORRECT],
        }


class SweepReport:
    """All operators."""

    def __init__(self, operators: Iterable[OperatorReport]) -> None:
        self.operators = sorted(operators, key=lambda operator: operator.name)

    def with_verdict(self, stage: str, verdict: str) -> list[OperatorReport]:
        """The operators with a verdict at a stage."""
        return [operator for operator in self.operators if operator.verdict(stage) == verdict]

    def counts(self, stage: str) -> Counter[str]:
        """How many operators have which verdict."""
        return Counter(operator.verdict(stage) for operator in self.operators)

    def percentage(self, stage: str) -> float:
        """The part of the operators that run in eager mode which is fully correct at a stage."""
        counts = self.counts(stage)
        running = counts.total() - counts[EAGER_FAILS] - counts[ABSENT]
        return 100.0 * counts[CORRECT] / running if running else 100.0

    def failed(self) -> list[OperatorReport]:
        """Operators that are wrong or break tintype at some stage."""
        return [op for op in self.operators if {op.verdict(stage) for stage in JUDGED} & {WRONG, ERROR}]

    def passed(self) -> list[OperatorReport]:
        """Operators that are correct as exported and decomposed, and in place where they can be."""
        good = {CORRECT, EAGER_FAILS, ABSENT}
        return [
            op
            for op in self.operators
            if op.verdict(DECOMPOSED) == CORRECT and {op.verdict(stage) for stage in JUDGED} <= good
        ]

    def good_enough(self) -> bool:
        """Whether the sweep as a whole succeeds."""
        wrong = any(self.counts(stage)[WRONG] for stage in JUDGED)
        return not wrong and all(self.percentage(stage) >= ENOUGH for stage in (EXPORT, DECOMPOSED))

    # --- text ----------------------------------------------------------------------------------------------

    def text(self) -> str:
        """The report for a terminal."""
        lines = []
        for stage in STAGES:
            lines += [*self._details(stage), ""]
        lines += [self.summary(stage) for stage in STAGES]
        lines.append(f"{len(self.passed())} passed, {len(self.failed())} failed")
        return "\n".join(lines)

    def summary(self, stage: str) -> str:
        """The counts of a stage in one line."""
        counts = self.counts(stage)
        listed = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
        return f"{stage}: {self.percentage(stage):.1f} % fully correct ({listed})"

    def _details(self, stage: str) -> Iterable[str]:
        for verdict in (REFUSED, ERROR, WRONG):
            operators = self.with_verdict(stage, verdict)
            if operators:
                yield f"{stage}, {verdict}:"
            for operator in operators:
                bad = operator.bad(stage)
                share = f"{len(bad)} of {len(operator.at(stage))}"
                yield f"  {operator.name}: {share}; {bad[0].case}: {bad[0].message}"

    # --- a page --------------------------------------------------------------------------------------------

    def markdown(self, command: str) -> str:
        """The report as a page of the documentation."""
        cases = sum(len(operator.at(EXPORT)) for operator in self.operators)
        lines = [
            "# The operator sweep",
            "",
            f"Every entry of torch's operator database ({len(self.operators)} of them, {cases} calls),",
            "exported and compared with eager mode: values, dtypes, structure, what is left in the inputs;",
            f"the in-place variant too, where there is one. Made by `{command}`.",
            "",
            "| stage | fully correct | correct | refused | wrong | error | not exported | eager fails | no such |",
            "|---|---|---|---|---|---|---|---|---|",
            *(self._row(stage) for stage in JUDGED),
            "",
            "Per cent are of the operators that eager mode can run. An operator is *refused* if each call that",
            "is not correct ends in an error that says why. *In place* stands for the variants with an underscore:",
            "on an input, whose new value is compared too, and on a tensor that the program made.",
            "",
            "## Refused operators",
            "",
            "| operator | stage | calls | reason |",
            "|---|---|---|---|",
            *self._refused_rows(),
        ]
        return "\n".join(lines) + "\n"

    def _row(self, stage: str) -> str:
        counts = self.counts(stage)
        cells = [str(counts[verdict]) for verdict in VERDICTS]
        return f"| {stage} | {self.percentage(stage):.1f} % | {' | '.join(cells)} |"

    def _refused_rows(self) -> Iterable[str]:
        for stage in JUDGED:
            for operator in self.with_verdict(stage, REFUSED):
                bad = operator.bad(stage)
                reasons = sorted({_in_a_cell(outcome.message) for outcome in bad})
                calls = f"{len(bad)} of {len(operator.at(stage))}"
                yield f"| `{operator.name}` | {stage} | {calls} | {'<br>'.join(reasons[:3])} |"


def _in_a_cell(message: str) -> str:
    """A message without what would break a table."""
    text = re.sub(r"\s+", " ", message).replace("|", "\\|")
    return text if len(text) <= 300 else f"{text[:300]}..."
