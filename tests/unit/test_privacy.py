"""No secret and nothing that a user asked comes through, wherever in a log it stands."""

from __future__ import annotations

import string
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpuwatch.advise.render.share import masked, site_masked
from hpuwatch.advise.report import build_report
from hpuwatch.app.catalogue import shipped_findings
from hpuwatch.app.rules import shipped_rules
from hpuwatch.life.phases import Phase
from hpuwatch.loop.watch import Watch
from hpuwatch.metrics.collector import exposition
from hpuwatch.parse.parser import Parser
from hpuwatch.parse.unmatched import Counter
from hpuwatch.records import Line
from hpuwatch.state.model import State
from hpuwatch.state.reduce import reduce
from hpuwatch.state.snapshot import Snapshot
from hpuwatch.testing.clock import FakeClock

pytestmark = pytest.mark.unit

RULES = shipped_rules()
LINES = sorted({example.line for rule in RULES.rules for example in rule.text.examples})
HEADS = (
    "INFO 11-29 12:29:10 x.py:1] ",
    "(EngineCore pid=9) WARNING 11-29 12:29:10 [x.py:1] ",
    "(Worker_TP1 pid=9) ERROR 11-29 12:29:10 [x.py:1] ValueError: ",
    "[INFO] ",
    "",
)
FORMS = (
    "api_key='{}'",
    "'api_key': ['{}']",
    "VLLM_API_KEY={}",
    "HF_TOKEN={}",
    "'hf_token': '{}'",
    "--api-key {}",
    "--hf-token={}",
    "['--api-key', '{}']",
    "Authorization: Bearer {}",
    "(b'authorization', b'Token {}')",
    "x-api-key: {}",
    "Cookie: session={}",
    "password={}",
    "passphrase='{}'",
    "AZURE_CLIENT_SECRET={}",
    "aws_secret_access_key = {}",
    "X-Amz-Signature={}",
    "credentials='{}'",
    "https://user:{}@proxy.local:8080/x",
    "GET /v1/models?key={} HTTP/1.1",
    "https://store.local/x?sig={}&se=1",
    "hf_{}",
    "sk-{}",
    "ghp_{}",
    "glpat-{}",
    "xoxb-{}",
    "Received request cmpl-1: prompt: 'tell me {} now', params: SamplingParams(n=1)",
    "Generated response cmpl-1: output: 'well {}', output_token_ids: [1]",
    "messages=[{{'role': 'user', 'content': '{}'}}]",
    "CompletionRequest(model='m', prompt='{}', suffix='{}')",
    "EmbeddingCompletionRequest(input=['{}', '{}'])",
    '{{"messages": [{{"role": "user", "content": "{}"}}]}}',
    '{{\\"prompt\\": \\"{}\\"}}',
    "TextPrompt(prompt='{}')",
    "system_prompt: '{}'",
    "reasoning_content='{}'",
    "generated_text: '{}'",
    "guided_regex='{}'",
    "text_1='{}', text_2='{}'",
    "tool_calls=[{{'function': {{'name': 'f', 'arguments': '{}'}}}}]",
    "image_url: {{'url': 'https://pictures.local/{}.png'}}",
    "data:image/png;base64,{}",
)
SECRETS = st.text(
    string.ascii_letters + string.digits, min_size=20, max_size=24
).filter(lambda text: not text.isdigit())


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that hpuwatch makes of a log."""

    texts: tuple[str, ...]

    def tells(self, secret: str) -> bool:
        return any(secret in text for text in self.texts)


def told_of(texts: list[str]) -> Told:
    unknown, state = Counter(), State()
    parser = Parser(RULES, unmatched=unknown)
    events = [
        event
        for number, text in enumerate(texts, 1)
        for event in parser.feed(Line(text, number * 1000, number))
    ]
    events += parser.close()
    for event in events:
        state = reduce(state, event)
    snapshot = Snapshot("x", Phase.READY, state)
    report = build_report([("log", state)], shipped_findings())
    return Told(
        (
            repr(events),
            repr(unknown.templates()),
            repr(state),
            exposition(snapshot).decode(),
            report.model_dump_json(),
        )
    )


@settings(max_examples=100)
@given(st.sampled_from(FORMS), st.sampled_from(HEADS), SECRETS, st.booleans())
def test_a_line_of_its_own(form: str, head: str, secret: str, dies: bool) -> None:
    texts = [head + form.format(secret, secret)]
    if dies:
        texts.insert(0, f"{head}Traceback (most recent call last):")
        texts.append(f"{head}RuntimeError: {form.format(secret, secret)}")
    assert not told_of(texts).tells(secret)


@settings(max_examples=150)
@given(st.sampled_from(LINES), st.sampled_from(FORMS), SECRETS, st.data())
def test_within_a_sentence_that_a_rule_knows(
    line: str, form: str, secret: str, data: st.DataObject
) -> None:
    words = line.split(" ")
    place = data.draw(st.integers(0, len(words)))
    text = " ".join([*words[:place], form.format(secret, secret), *words[place:]])
    assert not told_of([text]).tells(secret)


@given(
    st.lists(st.sampled_from(LINES), max_size=3),
    st.lists(SECRETS, min_size=1, max_size=3),
)
def test_a_prompt_of_many_lines(before: list[str], asked: list[str]) -> None:
    head = "INFO 11-29 12:29:10 [logger.py:1] "
    texts = [
        *before,
        f"{head}Received request cmpl-1: prompt: 'so",
        *asked,
        f"{asked[0]}', params: SamplingParams(n=1)",
        f"{head}Bucketing is ON.",
    ]
    told = told_of(texts)
    assert not any(told.tells(secret) for secret in asked)


@given(st.lists(SECRETS, min_size=1, max_size=6), st.booleans())
def test_the_last_lines_of_a_server_that_dies_within_a_prompt(
    asked: list[str], whole: bool
) -> None:
    head = "INFO 11-29 12:29:10 [logger.py:1] "
    texts = [
        f"{head}Bucketing is ON.",
        f"{head}Received request cmpl-1: prompt: 'so",
        *asked,
        *([f"{asked[0]}', params: SamplingParams(n=1)"] if whole else []),
    ]
    watch = Watch("x", RULES, FakeClock())
    watch.take("\n".join(texts).encode(), 1.0)
    watch.close()
    assert "Bucketing is ON." in watch.last_lines[0]
    assert not Told(watch.last_lines).tells(asked[0])


SITES = (
    "http://{}.example:8000/v1",
    "tcp://{}:29500",
    "/home/{}/models/x",
    "~/{}/x.txt",
    "host='{}', port=80",
    "hostname: {}",
    "pod_name={}",
    '"node": "{}"',
    "--host {} --port 8000",
    "pod/{}-0",
    "{}-5d9f7c6b4d-x2x4z",
    "{}.cluster.local",
    "{}.svc.cluster.local:9000",
    "{}@gateway",
    "root@{}",
    "s3://{}/weights",
    "file:///srv/{}",
    "./models/{}",
    "../{}/x",
    "~{}/x",
    "C:\\Users\\{}\\x",
    "\\\\{}\\share",
    "namespace={}",
)
NAMES = st.text(string.ascii_lowercase, min_size=12, max_size=16)


@given(st.sampled_from(SITES), NAMES, st.sampled_from(["", "at ", "('", "model='"]))
def test_a_shared_text_tells_of_no_site(form: str, name: str, before: str) -> None:
    text = f"{before}{form.format(name)}"
    assert name not in masked(text)
    assert name not in repr(site_masked({"events": [{"text": text, "n": 1}]}))


ADDRESSES = st.one_of(
    st.ip_addresses(v=4).map(str),
    # Less than that may be anything: "::1" is everybody's, "a::" a word of C++.
    st.ip_addresses(v=6).map(str).filter(lambda text: text.count(":") > 2),
    st.ip_addresses(v=6).map(lambda address: address.exploded),
)


@given(ADDRESSES, st.sampled_from(["{}", "({}, 80)", "[{}]:80", "ip={}", "'{}'"]))
def test_a_shared_text_has_no_address(address: str, form: str) -> None:
    assert address not in masked(f"listens on {form.format(address)} now")
