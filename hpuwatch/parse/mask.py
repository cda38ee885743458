"""What must never leave the parser: secrets and what users asked the model.

Secrets are known by name (``api_key='…'``, ``--hf-token …``, ``Authorization: Bearer …``)
and by value (``hf_…``, ``sk-…``, credentials in an address).  Request contents stand in the
request logger's lines, in dumped messages and in inlined pictures.  Everything found becomes
``***``; the rest of the line stays as it was.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STARS = "***"

_QUOTED = r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?"
_MODELS_OWN = (
    *("bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio"),
    *("vision", "start", "end", "stop", "think", "next", "new", "first", "last"),
    *("special", "per"),
)
"""A token is a secret unless its name says that it is one of the model's own."""

_NAME = (
    r"[\w-]*(?:api[_-]?keys?|passw(?:or)?d|passwd|secret(?:[_-]\w+)?"
    r"|access[_-]?key(?:[_-]?id)?|private[_-]?key|authorization)"
    r"|(?:[A-Za-z][A-Za-z0-9]*[_-])*"
    + "".join(rf"(?<!{word}[_-])" for word in _MODELS_OWN)
    + "token"
)
_VALUE = rf"(?:Bearer|Basic)\s+[^\s'\",]+|\[[^\]]*\]?|b?(?:{_QUOTED})|[^\s,;)}}\]'\"]+"
_HARMLESS = r"(?!(?:None|True|False|null|true|false|'{2}|\"{2}|\[\])(?![\w'\"]))"


@dataclass(frozen=True, slots=True)
class _Mask:
    """Text to hide.

    Attributes:
        signs: in lower case; any one of them makes a text worth a look.
        pattern: what is replaced.
        stays: what it is replaced by.
    """

    signs: tuple[str, ...]
    pattern: re.Pattern[str]
    stays: str

    def apply(self, text: str, lowered: str) -> str:
        if any(sign in lowered for sign in self.signs):
            return self.pattern.sub(self.stays, text)
        return text


_MASKS = (
    _Mask(
        (", params: ",),
        re.compile(r"(\bprompt: ).*(, params: )", re.DOTALL),
        rf"\1{STARS}\2",
    ),
    _Mask(
        ("received request",),
        re.compile(r"(Received request .*?\bprompt: )(?!\*\*\*).*", re.DOTALL),
        rf"\1{STARS}",
    ),
    _Mask(
        ("generated response",),
        re.compile(r"(Generated response .*?\boutput: ).*?(, output_token_ids: |$)"),
        rf"\1{STARS}\2",
    ),
    _Mask(
        ("messages",),
        re.compile(r"(['\"]?\bmessages['\"]?\s*[:=]\s*)[\[{].*[\]}]?", re.DOTALL),
        rf"\1{STARS}",
    ),
    _Mask(
        ("prompt", "content", "text"),
        re.compile(
            r"((?<![\w-])['\"]?(?:prompt|content|text|input_text|input_value)['\"]?"
            rf"\s*[:=]\s*)(?:{_QUOTED})"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("token_ids",),
        re.compile(r"(\b\w*token_ids['\"]?\s*[:=]\s*)\[[^\]]*\]?"),
        rf"\1[{STARS}]",
    ),
    _Mask(
        (";base64,",),
        re.compile(r"(;base64,)[A-Za-z0-9+/=%_-]+"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("key", "passw", "secret", "authoriz"),
        re.compile(
            rf"(?i)((?<![\w-])(?:--)?(?:{_NAME})['\"]?\s*[:=]\s*){_HARMLESS}(?:{_VALUE})"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("token=", "token:", "token'", 'token"', "token ="),
        re.compile(
            rf"(?i)((?<![\w-])(?:--)?(?:{_NAME})['\"]?\s*[:=]\s*){_HARMLESS}(?:{_VALUE})"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("key ", "passw", "secret", "token "),
        re.compile(rf"(?i)((?<![\w-])--(?:{_NAME})\s+)(?!--)(?:{_VALUE})"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("bearer ", "basic "),
        re.compile(r"(?i)\b((?:Bearer|Basic) +)[\w.~+/=-]{8,}"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("hf_", "sk-"),
        re.compile(r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,})"),
        STARS,
    ),
    _Mask(
        ("://",),
        re.compile(r"(://)[^/\s@'\"]+@"),
        rf"\1{STARS}@",
    ),
)
_LONG = 256
_LONG_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LONG},}}")


def mask(text: str) -> str:
    """Return the text without secrets and request contents."""
    lowered = text.lower()
    for item in _MASKS:
        text = item.apply(text, lowered)
    return _LONG_RUN.sub(STARS, text) if len(text) >= _LONG else text
