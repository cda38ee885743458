r"""What must never leave the parser: secrets and what users asked the model.

Secrets are known by name (``api_key='…'``, ``--hf-token …``, ``Authorization: Bearer …``)
and by value (``hf_…``, ``sk-…``, credentials in an address).  Request contents stand in the
request logger's lines, in dumped messages and in inlined pictures; JSON within JSON has its
quotes behind backslashes.  Everything found becomes ``***``; the rest of the line stays as it
was.

A line may be long and made to hurt, so every pattern takes time in proportion to it: none
reads on to the end from each of many places where it might begin.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STARS = "***"

_QUOTED = (
    r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?"
    # … and within a quoted text: up to the same quote behind as many backslashes.
    r"|(?P<escaped>\\+['\"])(?s:.*?)(?:(?<!\\)(?P=escaped)|\Z)"
)
_STRING = r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|\\+\"[^\"]*\"?"
_STRINGS = rf"\[\s*(?:(?:{_STRING})[\s,]*)+\]?"
_FLAT = rf"[\[({{](?:{_STRING}|\\+|[^\])}}'\"\\])*[\])}}]?"
_WITHIN = rf"[\[({{](?:{_STRING}|{_FLAT}|\\+|[^\])}}'\"\\])*[\])}}]?"
"""A printed list, tuple or mapping, with others in it; quotes may hold any bracket."""
_IS = r"(?:\\*['\"])?\s*[:=]\s*"
"""What stands between a name and its value; the name may be quoted."""
_IS_OR_NEXT = rf"(?:{_IS}|\\*['\"],\s*)"
"""The same, or the comma of a printed pair."""

_MODELS_OWN = (
    *("bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio"),
    *("vision", "start", "end", "stop", "think", "next", "new", "first", "last"),
    *("special", "per"),
)
"""A token is a secret unless its name says that it is one of the model's own."""

_NAME = (
    r"api[_-]?keys?|passw(?:or)?d|passwd|secret(?:[_-]\w{1,40})?"
    # Short names are words too: "forward pass: 3 ms", and a shell's PWD=/workspace.
    r"|(?<![A-Za-z0-9])(?!(?-i:PWD)(?<!_PWD)=/)(?:pass|pwd?|auth(?:[_-]key)?)"
    r"(?:(?==\S)|(?<![a-z] pass)(?<![a-z] auth))"
    r"|credentials?|passphrase|x-amz-signature"
    r"|access[_-]?key(?:[_-]?id)?|private[_-]?key"
    "|(?<![A-Za-z0-9])token"
    + "".join(rf"(?<!\b{word}[_-]token)(?<!_{word}[_-]token)" for word in _MODELS_OWN)
)
_VALUE = (
    rf"(?:Bearer|Basic)\s+[^\s'\",]+|{_WITHIN}|b?(?:{_QUOTED})"
    r"|[^\s,;)}\]'\"]+"
)
_HARMLESS = (
    r"(?!(?:None|True|False|null|true|false|'{2}|\"{2}|\[\]|\(\)|\{\})(?![\w'\"]))"
)
_NO_SECRETS = (
    "not|no|None|required|missing|empty|unset|set|invalid|incorrect|wrong|needed|too|used"
    "|given|ignored|a|an|the"
)
"""What is said of a secret without telling it."""
_CONTENTS = (
    r"(?:[a-z]{1,20}_)?prompts?(?:_text)?|(?:reasoning_)?content|reasoning|suffix|stop"
    r"|(?:generated_)?text(?:_[12])?|inputs?|input_text|input_value|arguments|query"
    r"|documents?|[Oo]utput|bad_words|guided_(?:regex|grammar|json|choice)|(?:image|audio|video)_url"
)


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
        for sign in self.signs:
            if sign in lowered:
                return self.pattern.sub(self.stays, text)
        return text


_MASKS = (
    _Mask(
        ("messages",),
        re.compile(rf"(\bmessages{_IS})[\[{{].*", re.DOTALL),
        rf"\1{STARS}",
    ),
    _Mask(
        (
            *("prompt", "content", "text", "input", "arguments", "query", "document"),
            *("reasoning", "suffix", "stop", "output", "guided_", "_url", "bad_words"),
        ),
        re.compile(rf"((?<![\w-])(?:{_CONTENTS}){_IS})(?:{_STRINGS}|{_QUOTED})"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("prompt",),
        # Without quotes nobody knows where it ends.  A figure or a switch is none.
        re.compile(
            rf"((?<![\w-])(?:[a-z]{{1,20}}_)?prompts?(?:_text)?{_IS})"
            r"(?!(?:None|True|False|null|true|false)\b)[^\s\d\[\](){}<>'\"\\*,;:=|.-][^\n]*"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("_url",),
        re.compile(
            rf"((?:image|audio|video)_url{_IS}\{{\s*(?:\\*['\"])?url{_IS})(?:{_QUOTED})"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("key=", "sig=", "signature=", "token=", "code=", "credential="),
        re.compile(
            r"(?i)([?&](?:[a-z-]{0,20}-)?(?:key|sig|signature|token|code|credential)=)"
            r"[^\s&'\"#]+"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("token_ids",),
        re.compile(rf"(token_ids{_IS})\[[^\]]*\]?"),
        rf"\1[{STARS}]",
    ),
    _Mask(
        (";base64,",),
        re.compile(r"(;base64,)[A-Za-z0-9+/=%_-]+"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("authorization", "cookie"),
        # A bare header may have any scheme and quotes of its own: all of it goes.
        re.compile(
            rf"(?i)((?:authorization|cookies?){_IS_OR_NEXT}){_HARMLESS}"
            rf"(?:\{{[^}}]*\}}?|b?(?:{_QUOTED})|[^\n]+)"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("keys",),
        # Several in one word: no comma ends it.
        re.compile(rf"(?i)(api[_-]?keys{_IS}){_HARMLESS}[^\s'\"\[\](){{}}\\]+"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("curl ",),
        re.compile(r"(\s(?:-u|--user)[\s=]*['\"]?[^\s:'\"]{1,256}:)[^\s'\"]+"),
        rf"\1{STARS}",
    ),
    _Mask(
        (
            *("key", "pass", "pw", "auth", "secret", "credential", "signature"),
            *("token=", "token:", "token'", 'token"', "token ", "token\\"),
        ),
        re.compile(rf"(?i)((?:{_NAME}){_IS_OR_NEXT}){_HARMLESS}(?:{_VALUE})"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("key ", "passw", "secret", "token "),
        re.compile(
            rf"(?i)((?<![\w-])--[\w-]{{0,60}}?(?:{_NAME})\s+)(?!--)(?:{_VALUE})"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        (" is ",),
        re.compile(
            r"(?i)((?:passw(?:or)?d|passwd|passphrase|api[ _-]?key|secret) is:? )"
            rf"(?!(?:{_NO_SECRETS})\b)(?:{_QUOTED}|[^\s,;'\"]+)"
        ),
        rf"\1{STARS}",
    ),
    _Mask(
        ("hooks.slack.com/", "/webhook"),
        re.compile(r"(?i)(hooks\.slack\.com/|/webhooks?/)[^\s'\"<>]+"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("bearer ", "basic "),
        re.compile(r"(?i)\b((?:Bearer|Basic) +)[\w.~+/=-]{8,}"),
        rf"\1{STARS}",
    ),
    _Mask(
        ("hf_", "sk-", "gh", "github_pat_", "akia", "asia", "xox", "glpat-", "eyj"),
        re.compile(
            r"(?<![A-Za-z0-9])(?:hf_(?=[A-Za-z]{0,99}\d|[A-Za-z]{20})[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}"
            r"|gh[oprsu]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|(?:AKIA|ASIA)[A-Z0-9]{12,}"
            r"|xox[a-z]-[A-Za-z0-9-]{8,}|glpat-[\w-]{8,}"
            # A signed web token: three parts, the first of them JSON in base64.
            r"|(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?)"
        ),
        STARS,
    ),
    _Mask(
        ("://",),
        re.compile(r"(://)[^/\s@'\"]+@"),
        rf"\1{STARS}@",
    ),
)
_LONG = 256
_KEYS_LINE = re.compile(r"[A-Za-z0-9+/]{60,76}={0,2}")
"""A line of a key that somebody printed."""
_LONG_RUN = re.compile(rf"[A-Za-z0-9+/=_-]{{{_LONG},}}")

REQUEST, _PROMPT, _PARAMS = "Received request ", "prompt: ", ", params: "
RESPONSE, _OUTPUT, _OUTPUT_END = (
    "Generated response ",
    "output: ",
    ", output_token_ids: ",
)


def mask(text: str) -> str:
    """Return the text without secrets and request contents."""
    if _KEYS_LINE.fullmatch(text):
        return STARS
    text = _without_output(_without_prompt(text))
    lowered = text.lower()
    for item in _MASKS:
        text = item.apply(text, lowered)
    return _LONG_RUN.sub(STARS, text) if len(text) >= _LONG else text


def mask_value(name: str, value: str) -> str:
    """Return the value of a variable, or of a flag with its dashes, without a secret."""
    on_command_line = f"{name} {value}"
    if mask(on_command_line) != on_command_line:
        return STARS
    return mask(f"{name}={value}").partition("=")[2]


def is_open_request(text: str) -> bool:
    """Tell whether a request's line ends within its prompt: what follows belongs to it."""
    return REQUEST in text and _PROMPT in text and _PARAMS not in text


def _without_prompt(text: str) -> str:
    """Hide from the first "prompt: " to the last ", params: ", which a prompt may hold too."""
    end = text.rfind(_PARAMS)
    request = text.find(REQUEST)
    begin = text.find(_PROMPT, max(request, 0))
    if begin < 0 or (end < begin and request < 0):
        return text
    begin += len(_PROMPT)
    return f"{text[:begin]}{STARS}{text[end:] if end >= begin else ''}"


def _without_output(text: str) -> str:
    response = text.find(RESPONSE)
    begin = text.find(_OUTPUT, response) if response >= 0 else -1
    if begin < 0:
        return text
    begin += len(_OUTPUT)
    end = text.rfind(_OUTPUT_END, begin)
    return f"{text[:begin]}{STARS}{text[end:] if end >= 0 else ''}"
