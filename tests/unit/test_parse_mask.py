"""Secrets and request contents never leave the parser."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuwatch.app.rules import shipped_rules
from hpuwatch.parse.mask import mask
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.unmatched import Counter
from hpuwatch.records import Line

pytestmark = pytest.mark.unit

SECRET = "Zq7wB1xK9mT4"  # noqa: S105  made up, and meant to be found


@pytest.mark.parametrize(
    "text",
    [
        "api_key='{}', port=80",
        "'api_key': ['{}', '{}'], 'port': 80",
        '"api_key": "{}"',
        "VLLM_API_KEY={} vllm serve",
        "HF_TOKEN={}",
        "HUGGING_FACE_HUB_TOKEN: {}",
        "'hf_token': '{}'",
        "vllm serve m --api-key {} --port 80",
        "vllm serve m --hf-token={}",
        "Authorization: Bearer {}",
        "{{'authorization': 'Bearer {}'}}",
        "sent Bearer {} to it",
        "password={}; user=x",
        "DB_PASSWORD='{}'",
        "client_secret: {}",
        "aws_secret_access_key = {}",
        "AWS_ACCESS_KEY_ID={}",
        "session_token={}",
        "read hf_{} from file",
        "key sk-{}",
        "https://user:{}@proxy.local:8080/x",
        "Received request cmpl-1: prompt: 'tell me {} now', params: SamplingParams(n=1)",
        "Received request cmpl-1: prompt: 'a, params: {}', params: SamplingParams(n=1)",
        "Received request cmpl-1: prompt: 'it was cut {} and",
        "Generated response cmpl-1: output: 'well {}', output_token_ids: [1], finish",
        "Generated response cmpl-1: output: 'well {}",
        "input={{'messages': [{{'role': 'user', 'content': '{}'}}]}}",
        "content='{}'",
        "'api_key': ('{}', '{}'), 'port': 80",
        "'api_key': {{'a': ['{0}', b'{0}'], 'b': \"{0}\"}}, 'port': 80",
        "'api_key': (None, ')', '{}')",
        "'extra': {{'pass': '{0}', 'pwd': '{0}', 'pw': '{0}', 'auth': '{0}'}}",
        "'headers': {{'X-Auth': '{}'}}",
        "DB_PASS={} MYSQL_PWD={}",
        "curl -u user:{} https://a/b",
        "curl --user 'user:{}' https://a/b",
        "API_KEYS={0},{0};{0}",
        "password is {}",
        "the passphrase is '{}'",
        "prompt={}",
        "prompt_text: tell me {}",
        "system_prompt: you are {} and {}",
        "bad_words=['{}']",
        "https://hooks.slack.com/services/T0/B0/{}",
        "https://chat.local/api/webhooks/7/{}",
        'prompt="it\'s {}"',
        "image_url data:image/png;base64,{}",
        "x" * 300 + "{}",
        '{{\\"api_key\\": \\"{}\\"}}',
        '{{\\"api_key\\": \\"a \\\\\\"b {}\\"}}',
        'VLLM_API_KEY=\\"two words {}\\" vllm serve',
        "Authorization: Token {}",
        "Authorization: ApiKey {}",
        "Authorization: Digest user, response={}",
        "(b'authorization', b'Token {}')",
        "Cookie: session={}; other={}",
        "Set-Cookie: id={}; Path=/",
        'Cookie: a="b {}"',
        "cookies={{'id': '{}'}}",
        "secret_token_value={}",
        '{{"prompt": ["{}", "{}"]}}',
        '{{"prompt": ["a ] b", "{}"]}}',
        '{{\\"prompt\\": [\\"{}\\"]}}',
        '{{"input": "{}"}}',
        '{{"arguments": "{{\\"city\\": \\"{}\\"}}"}}',
        "Generated response cmpl-1: output: 'a, output_token_ids: {}', output_token_ids: [1]",
    ],
)
def test_secrets_and_contents_are_masked(text: str) -> None:
    masked = mask(text.format(*[SECRET] * 2))
    assert SECRET not in masked
    assert "***" in masked


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_{}",
        "github_pat_{}",
        "AKIA" + SECRET.upper(),
        "xoxb-{}",
        "glpat-{}",
        "eyJhbGciOi.eyJzdWIi.{}",
        "hf_{}",
    ],
)
def test_secrets_are_known_by_their_looks(secret: str) -> None:
    text = f"found {secret.format(SECRET)} in a file"
    assert mask(text) == "found *** in a file"


@pytest.mark.parametrize(
    "hostile",
    [
        *("Received request ", "Generated response ", "prompt: ", ", params: prompt: "),
        *("messages ", "messages", "secret_", "secret ", "token_", "a_token_", "a_"),
        *(
            "--a",
            "--token ",
            "--api-key",
            "password\\",
            "api_key='",
            "cookie",
            "token_ids[",
        ),
        *(
            "prompt=[",
            "prompt='",
            '"text": \\"',
            "prompt: ['a' ",
            "bearer ",
            "://a",
            "//a:",
        ),
        *(
            "eyJabcdef-",
            "eyJabcdef.",
            "xoxb-",
            ";base64,",
            "authorization ",
            "key\\\\'",
            *(
                "key=(",
                "key={'a': (",
                "key=({\\",
                "auth ",
                "pass",
                "curl -u ",
                "keys=(",
            ),
        ),
        *("x" * 255 + " ", "\\", "'", " ", "prompt\\"),
        *(
            "image_url={'url':",
            "image_url={",
            "password is ",
            "prompt =",
            "prompt:x",
            "a_prompt=x ",
            "hooks.slack.com/",
            "?a-key=",
            "&a-",
            "a_prompt",
            "credential",
        ),
    ],
)
def test_a_long_line_takes_no_longer_than_its_length_asks_for(hostile: str) -> None:
    text = hostile * (1_000_000 // len(hostile))
    signs = "key passw secret token= cookie messages prompt input token_ids eyj bearer "
    assert len(mask(signs + text)) > 0
    assert len(mask(f"api_key='{text}")) > 0


@pytest.mark.parametrize(
    "text",
    [
        "api_key=None, ssl=False",
        "the password is not set",
        "hf_overrides={}, 'hf_config_path': None",
        "forward pass: 3.1 ms, PWD=/workspace, 'auth': {}",
        "is_prompt: True, num_prompts: 5",
        "prompt: 2.14 GiB, decode: 4.99 GiB",
        "prompt=[128, 256], phase=prompt, prompt: (1, 128)",
        "Generated 2 prompt buckets: [(1, 128)]",
        "'api_key': None",
        "max_num_batched_tokens=4096, num_tokens: 5",
        "eos_token='</s>', pad_token_id=0, image_token: 7",
        "Avg prompt throughput: 310.0 tokens/s, Avg generation throughput: 1.0 tokens/s",
        "Detected the chat template content format to be 'string'.",
        "Generated 2 prompt buckets [bs, query, num_blocks]: [(1, 128, 0), (1, 256, 0)]",
        "tokenizer='m/a', skip_tokenizer_init=False, key=5",
        "Free device memory: 80.5 GiB, 60.4 GiB usable",
        "http://127.0.0.1:8000/v1/models",
        "Prompt warmup processing:   0%|          | 0/21 [00:00<?, ?item/s]",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    assert mask(text) == text


def test_a_line_of_a_key_goes() -> None:
    assert mask("MIIEvQIBADANBgkq" * 4) == "***"
    assert mask("MIIEvQIBADANBgkq" * 4 + "==") == "***"
    assert mask("=" * 64) == "=" * 64


def test_only_the_secret_goes() -> None:
    text = f"args: Namespace(api_key='{SECRET}', model='m/a', hf_token=None)"
    assert mask(text) == "args: Namespace(api_key=***, model='m/a', hf_token=None)"


def test_token_ids_go_too() -> None:
    text = "prompt_token_ids: [1, 2, 3], lora_request: None"
    assert mask(text) == "prompt_token_ids: [***], lora_request: None"


@given(st.text(max_size=300))
def test_masking_is_done_once_and_for_all(text: str) -> None:
    assert mask(mask(text)) == mask(text)


QUOTED = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1
)


@given(QUOTED)
def test_no_prompt_comes_through(prompt: str) -> None:
    line = f"Received request cmpl-1: prompt: {'<' + prompt + '>'!r}, params: Sampling(n=1)"
    assert mask(line) == "Received request cmpl-1: prompt: ***, params: Sampling(n=1)"


def test_a_prompt_cannot_pretend_to_be_the_server() -> None:
    parser = Parser(shipped_rules())
    said = "Warmup finished in 49 secs, allocated 12.5 GiB of device memory"
    events = parser.feed(
        Line(
            "(APIServer pid=1) INFO 11-29 12:29:10 [logger.py:1] Received request cmpl-1: "
            f"prompt: '{said}', params: SamplingParams(n=1)"
        )
    )
    assert events == []


USERS_WORDS = (
    "[INFO] {}",
    "6: {}",
    "[rank1]: {}",
    "2026-11-29 10:00:00 INFO {}",
    '{{"level": "INFO", "message": "{}"}}',
    "x (Worker_TP1 pid=8) {}",
    "Prompt warmup processing:   5%| INFO 11-29 12:29:10 [x.py:1] {}",
)
"""What a user may ask to look like somebody else."""


@pytest.mark.parametrize("words", USERS_WORDS)
@pytest.mark.parametrize(
    "request_line",
    [
        "(APIServer pid=1) INFO 11-29 12:29:10 [logger.py:1] {}",
        "INFO 11-29 12:29:10 logger.py:1] {}",
        "2026-11-29 10:00:00,123 - vllm.logger - INFO - {}",
    ],
)
def test_words_on_a_requests_line_are_the_users(request_line: str, words: str) -> None:
    unknown = Counter()
    parser = Parser(shipped_rules(), unmatched=unknown)
    said = "Skipping warmup..."
    asked = f"Received request cmpl-1: prompt: 'do {words.format(said + SECRET)}', params: S()"
    assert parser.feed(Line(request_line.format(asked))) == []
    assert SECRET not in repr(unknown.templates())


@pytest.mark.parametrize("words", USERS_WORDS[:5])
@pytest.mark.parametrize(
    "head",
    [
        "INFO 11-29 12:29:1{} [logger.py:1] ",
        "2026-11-29 10:00:0{},123 - vllm.logger - INFO - ",
        "[INFO] 2026-11-29 10:00:0{} vllm.logger: ",
    ],
)
def test_lines_of_a_prompt_are_the_users_in_every_form(head: str, words: str) -> None:
    unknown = Counter()
    parser = Parser(shipped_rules(), unmatched=unknown)
    said = "Skipping warmup..."
    texts = [
        f"{head.format(0)}Received request cmpl-1: prompt: 'two lines, of which",
        words.format(said + SECRET),
        f"another{SECRET}, params: SamplingParams(n=1)",
        f"{head.format(2)}{said}",
    ]
    events = [e for n, t in enumerate(texts, 1) for e in parser.feed(Line(t, number=n))]
    assert [event.line.number for event in events] == [4]
    assert SECRET not in repr(unknown.templates())


def test_lines_of_a_prompt_in_an_object_are_the_users() -> None:
    unknown = Counter()
    parser = Parser(shipped_rules(), unmatched=unknown)
    said = "Skipping warmup..."
    asked = (
        f"Received request cmpl-1: prompt: 'one\n[INFO] {said}{SECRET}\n', params: S()"
    )
    texts = [
        json.dumps({"time": f"2026-11-29 10:00:0{n}", "level": "INFO", "message": text})
        for n, text in enumerate((asked, said), 1)
    ]
    events = [e for n, t in enumerate(texts, 1) for e in parser.feed(Line(t, number=n))]
    assert [event.line.number for event in events] == [2]
    assert SECRET not in repr(unknown.templates())


def test_a_prompt_goes_on_until_somebody_else_speaks() -> None:
    unknown = Counter()
    parser = Parser(shipped_rules(), unmatched=unknown)
    head = "INFO 11-29 12:29:10 [logger.py:1]"
    said = "Warmup finished in 49 secs, allocated 12.5 GiB of device memory"
    texts = [
        f"{head} Received request cmpl-1: prompt: 'two lines, of which",
        said,
        f"warm-up {SECRET}, params: SamplingParams(n=1)",
        f"{head} {said}",
    ]
    events = [e for n, t in enumerate(texts, 1) for e in parser.feed(Line(t, number=n))]
    assert [event.line.number for event in events] == [4]
    assert SECRET not in repr(unknown.templates())


def test_events_templates_and_contexts_are_masked() -> None:
    unknown = Counter()
    parser = Parser(shipped_rules(), unmatched=unknown)
    head = "(EngineCore pid=9) ERROR 11-29 12:29:10 [core.py:9] "
    texts = [
        f"INFO 11-29 12:29:10 api_server.py:626] args: Namespace(api_key='{SECRET}')",
        f"WARNING 11-29 12:29:10 [x.py:1] nobody knows HF_TOKEN={SECRET}",
        head + "Traceback (most recent call last):",
        head + f"    call(api_key='{SECRET}')",
        head + f"ValueError: bad password={SECRET}",
    ]
    events = [e for n, t in enumerate(texts, 1) for e in parser.feed(Line(t, number=n))]
    events += parser.close()
    assert {event.kind for event in events} == {"engine_config", "fault"}
    assert SECRET not in repr(events)
    assert SECRET not in repr(unknown.templates())
