"""The base of all configuration models: no unknown fields, camelCase names, and Go's notion of unset values."""

import base64
import binascii
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from app.model.gotext import Duration

V1: Final = "kubescheduler.config.k8s.io/v1"
"""The API version that kube-scheduler 1.36 reads."""


class Model(BaseModel):
    """Frozen, without unknown fields; in files names are camelCase and case-sensitive. Null means absent, as in Go.

    Defaults that are models are made by ``model_construct``: nothing is to be validated, and making an instance
    otherwise builds a validator for its model alone when the process starts.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _nulls_are_absent(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value


Str = Annotated[str, Strict()]
Bool = Annotated[bool, Strict()]
Int32 = Annotated[int, Strict(), Field(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Strict(), Field(ge=-(2**63), le=2**63 - 1)]
Float = Annotated[float, Strict(), Field(allow_inf_nan=False)]


def _duration(value: Any) -> Duration:
    if isinstance(value, Duration):
        return value
    if not isinstance(value, str):
        raise ValueError('must be a duration such as "5s" or "1m30s"')  # noqa: TRY004 - pydantic collects ValueErrors
    return Duration.parse(value)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("must be base64") from None
    return text


GoDuration = Annotated[
    Duration,
    PlainValidator(_duration),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "description": "a Go duration such as 1m30s"}),
]
"""A duration in Go's notation."""

Base64 = Annotated[Str, AfterValidator(_base64)]
"""Bytes, as base64 text."""


def unset_means(default: Any) -> AfterValidator:
    """A validator that replaces zero and empty by the default, because Go does not distinguish them from unset."""
    return AfterValidator(lambda value: value or default)
