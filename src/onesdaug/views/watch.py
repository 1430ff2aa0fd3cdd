"""What a job tells while it runs and when it is done. Light: the command line imports it before anything else."""

from __future__ import annotations

from dataclasses import dataclass, field


class Watch:
    """Hears what a job has to tell; this one listens to nothing."""

    def advance(self, made: int = 0, skipped: int = 0, failed: int = 0) -> None:
        """So many more views are made, were there already, or cannot be made."""

    def say(self, text: str) -> None:
        """A line for the user."""


@dataclass
class Summary:
    """What a job did: views made and skipped, the inputs that failed and why, seconds."""

    made: int = 0
    skipped: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        return len(self.failures)
