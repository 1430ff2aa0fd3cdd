"""What can be told of questions and their scoring. Light, for the command line's help is made of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import Field

from onesdaug.errors import ConfigError

Decoding = Literal["greedy", "sample"]
DECODINGS: tuple[Decoding, ...] = get_args(Decoding)
SUFFIX = " Please answer this question with one word."


@dataclass(frozen=True)
class Contrast:
    """VCD's settings; these are its evaluation script's."""

    alpha: Annotated[float, Field(ge=0, description="Contrast; else 1")] = 1.0
    beta: Annotated[float, Field(ge=0, le=1, description="Cut-off; else 0.1")] = 0.1
    noise_step: Annotated[int, Field(ge=0, le=999, description="Of the noised image; else 500")] = 500

    def __post_init__(self) -> None:
        if not (0 <= self.alpha < math.inf and 0 <= self.beta <= 1 and 0 <= self.noise_step < 1000):
            raise ConfigError(
                f"VCD with alpha {self.alpha:g}, beta {self.beta:g}, noise step {self.noise_step}: alpha is not "
                "negative, beta lies in [0, 1], the noise step in 0..999"
            )


@dataclass(frozen=True)
class Asking:
    """How every question is put, whatever the model."""

    decodings: Annotated[tuple[Decoding, ...], Field(description="greedy or sample; may be repeated")] = DECODINGS
    suffix: Annotated[str, Field(description="Follows every question")] = SUFFIX
    max_new_tokens: Annotated[int, Field(ge=1, description="Length of an answer")] = 1
    temperature: Annotated[float, Field(gt=0, description="Of sampled decoding; greedy has none")] = 1.0
    seed: Annotated[int, Field(ge=0, description="Of the views, the sampled answers and VCD's noise")] = 1234

    def __post_init__(self) -> None:
        if not self.decodings or any(name not in DECODINGS for name in self.decodings):
            raise ConfigError(f"decoding must be greedy or sample, got {', '.join(self.decodings) or 'none'}")
        if len(set(self.decodings)) != len(self.decodings):
            raise ConfigError(f"a decoding is named twice: {', '.join(self.decodings)}")
        if self.max_new_tokens < 1 or not 0 < self.temperature < math.inf:
            raise ConfigError("at least one new token is needed, and a temperature above zero")


@dataclass(frozen=True)
class Scoring:
    """How the answers about an image and its views become one."""

    parser: Annotated[str, Field(description="Reads the answers: official, vcd or exact")] = "official"
    combine: Annotated[str, Field(description="vote, or margin: the mean of the yes/no logit margins")] = "vote"
    original_weight: Annotated[float, Field(description="Weight of the original")] = 1.0
    view_weight: Annotated[float, Field(description="Weight of each view")] = 1.0


@dataclass(frozen=True)
class LocalOptions:
    """Of a model that runs here."""

    prompt: Annotated[str, Field(description="template (the model's own, the default), llava, or vcd")] = "template"
    dtype: Annotated[str, Field(description="Of the model's weights (else bfloat16)")] = "bfloat16"
    batch_size: Annotated[int | None, Field(ge=1, description="Pictures per pass (else all of a question)")] = None


@dataclass(frozen=True)
class EndpointOptions:
    """Of a server that is asked."""

    endpoint: Annotated[
        str | None,
        Field(
            description="Ask an OpenAI-compatible server, e.g. http://host:8000/v1; its key comes from OPENAI_API_KEY"
        ),
    ] = None
    timeout: Annotated[float, Field(gt=0, description="Endpoint: seconds per request (else 60)")] = 60.0
    retries: Annotated[int, Field(ge=0, description="Endpoint: further tries (else 5)")] = 5
    workers: Annotated[int, Field(ge=1, description="Endpoint: requests at a time (else 4)")] = 4
