"""What is refused, in vLLM's words and in the form of the release."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from hpuwatch.sim.http.wire import Response, json_response

_KINDS: Mapping[HTTPStatus, str] = {
    HTTPStatus.BAD_REQUEST: "BadRequestError",
    HTTPStatus.NOT_FOUND: "NotFoundError",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalServerError",
}

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."


class Refused(Exception):  # noqa: N818  an answer, not a failure of ours
    """A request that vLLM would refuse, with its status and words.

    Attributes:
        param: the field that is wrong, None where vLLM names none.
        kind: what clients get as the error's type.
    """

    def __init__(
        self,
        message: str,
        status: HTTPStatus = HTTPStatus.BAD_REQUEST,
        param: str | None = None,
        kind: str = "",
    ) -> None:
        """Take the words."""
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.kind = kind

    def response(self, *, is_v0: bool) -> Response:
        """Return the answer; V0's has the error at the top, later ones one level down."""
        error = error_object(self.message, self.status, self.param, self.kind)
        whole = {"object": "error", **error} if is_v0 else {"error": error}
        return json_response(whole, self.status)


def error_object(
    message: str, status: HTTPStatus, param: str | None = None, kind: str = ""
) -> dict[str, object]:
    """Return an error as it stands in an answer, or in a stream that had begun."""
    return {
        "message": message,
        "type": kind or _KINDS.get(status, "BadRequestError"),
        "param": param,
        "code": status.value,
    }


def dead() -> Refused:
    """Refuse since the engine is dead."""
    return Refused(DEAD, HTTPStatus.INTERNAL_SERVER_ERROR)


def invalid(kind: str, field: str, message: str, value: object) -> Refused:
    """Refuse a field in the words of vLLM's validation."""
    detail = {
        "type": kind,
        "loc": ("body", field),
        "msg": message,
        "input": value,
    }
    return not_valid(str(detail))


def not_valid(detail: str) -> Refused:
    """Refuse a request that doesn't even get to where it is answered."""
    message = f"1 validation error:\n  {detail}"
    return Refused(message, kind=HTTPStatus.BAD_REQUEST.phrase)


def too_long(limit: int, prompt: int, wanted: int | None, *, is_v0: bool) -> Refused:
    """Refuse a request that would not fit the model's context, in tokens."""
    if is_v0:
        return _too_long_for_v0(limit, prompt, wanted)
    if prompt >= limit or wanted is None:
        return Refused(
            f"This model's maximum context length is {limit} tokens. However, your"
            f" request has {prompt} input tokens. Please reduce the length of the input"
            " messages.",
            param="input_tokens",
        )
    return Refused(
        f"'max_tokens' or 'max_completion_tokens' is too large: {wanted}. This model's"
        f" maximum context length is {limit} tokens and your request has {prompt} input"
        f" tokens ({wanted} > {limit} - {prompt}).",
        param="max_tokens",
    )


def _too_long_for_v0(limit: int, prompt: int, wanted: int | None) -> Refused:
    context = f"This model's maximum context length is {limit} tokens. However, you"
    if wanted is None or prompt >= limit:
        return Refused(
            f"{context} requested {prompt} tokens in the messages, Please reduce the"
            " length of the messages."
        )
    return Refused(
        f"{context} requested {prompt + wanted} tokens ({prompt} in the messages, {wanted}"
        " in the completion). Please reduce the length of the messages or completion."
    )
