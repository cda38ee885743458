"""Every way to write a proposal down, read back by what will read it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpuwatch.advise.document import (
    BucketFilePart,
    BucketsPart,
    FigurePart,
    GraphsPart,
    Headline,
    KvPart,
    LeftPart,
    MemoryPart,
    ProposalPart,
    Report,
    ServerPart,
    SettingPart,
    SourcePart,
    StartReport,
    StepPart,
    TrafficPart,
    WarmupPart,
)
from hpuwatch.advise.envheader import read_header
from hpuwatch.advise.lint.words import of_command
from hpuwatch.advise.render.settings import (
    quoted_for_env,
    render_compose,
    render_diff,
    render_docker,
    render_env,
    render_helm,
)
from hpuwatch.advise.render.text import render_markdown, render_text
from hpuwatch.gaudi.resolve import FILE_VARIABLE

pytestmark = pytest.mark.unit

NASTY = 'it\'s "50 %" of $HOME `id` \\ #1 {{ x }}: y'
BUCKETS = "(1, 128, 0)\n(1, 256, 0)"
PATH = "/etc/vllm/my buckets.txt"
FIGURE = FigurePart(value=90, low=80, high=120.0, origin="learned")
RESERVE = "VLLM_GRAPH_RESERVED_MEM"


def report(**changes: object) -> Report:
    """A report whose settings have all that a quotation can break at."""
    start = StartReport(
        source=SourcePart(file="a server.log", start=1),
        origin="measured",
        headline=Headline(do=f"Set {RESERVE}=0.05.", why="It lies idle.\nReally."),
        server=ServerPart(
            release="plugin-0.26", card="gaudi3", model="acme/m 7b", tp=2, phase="ready"
        ),
        memory=MemoryPart(),
        kv=KvPart(),
        buckets=BucketsPart(),
        graphs=GraphsPart(),
        warmup=WarmupPart(),
        traffic=TrafficPart(),
        faults=[],
        findings=[],
        proposal=proposal(),
        settings=[
            SettingPart(name=RESERVE, value="0.1", line=3),
            SettingPart(name="VLLM_OLD", value="1", line=4),
            SettingPart(name="HF_TOKEN", value="***", line=5),
            SettingPart(name=FILE_VARIABLE, value=PATH, line=6),
            SettingPart(name="--model", value="acme/m 7b", line=7),
            SettingPart(name="--enforce-eager", value="false", line=8),
            SettingPart(name="--max-model-len", value="8192", line=8),
        ],
        bucket_file=BUCKETS,
    )
    return Report(reports=[start.model_copy(update=changes)])


def proposal() -> ProposalPart:
    return ProposalPart(
        env={RESERVE: "0.05", "VLLM_ODD": NASTY},
        unset=["VLLM_OLD"],
        flags=["--max-model-len", "4096", "--enable-prefix-caching", "true"],
        figures={"ready_seconds": FIGURE},
        steps=[
            StepPart(settings=["A=1"], gain="it starts", why="It died."),
            StepPart(settings=["B=2"], gain="it holds more", why="It is idle."),
        ],
        cautions=["Nobody knows."],
        base="log-0123456789abcdef",
        why="It lies idle.",
    )


def test_an_env_file_says_for_whom_it_is_and_is_read_by_a_shell(tmp_path: Path) -> None:
    text = render_env(report())
    header = read_header(text)
    assert header is not None
    assert header.known() == {
        "release": "plugin-0.26",
        "card": "gaudi3",
        "model": "acme/m 7b",
        "tp": "2",
        "base": "log-0123456789abcdef",
    }
    assert "# unset: VLLM_OLD" in text
    file = tmp_path / "best.env"
    file.write_text(text, encoding="utf-8")
    said = subprocess.run(
        ["sh", "-c", f'set -a; . {file}; printf %s "$VLLM_ODD"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == NASTY


VALUES = (
    "plain",
    "",
    "two words",
    "'",
    "'$",
    '\\"',
    "`id`",
    "#",
    "~",
    "a=b",
    "\\n",
    "ü$x'`",
)


def test_a_quoted_value_is_one_value_to_a_shell(tmp_path: Path) -> None:
    file = tmp_path / "some.env"
    lines = [f"X{n}={quoted_for_env(value)}\n" for n, value in enumerate(VALUES)]
    file.write_text("".join(lines), encoding="utf-8")
    wanted = " ".join(f'"$X{n}"' for n in range(len(VALUES)))
    said = subprocess.run(
        ["sh", "-c", f". {file}; printf '%s\\n' {wanted}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.splitlines() == list(VALUES)


def test_docker_gets_variables_flags_and_the_bucket_file() -> None:
    text = render_docker(report())
    begin, _, command = text.partition("docker run")
    assert f"<<'END'\n{BUCKETS}\nEND\n" in begin
    words = shlex.split(f"docker run{command}".replace("\\\n", ""))
    given_ = [words[n + 1] for n, word in enumerate(words) if word == "-e"]
    assert f"{RESERVE}=0.05" in given_
    assert f"VLLM_ODD={NASTY}" in given_
    assert "HF_TOKEN" in given_
    assert not [each for each in given_ if each.startswith("VLLM_OLD")]
    assert f"$PWD/hpuwatch-buckets.txt:{PATH}:ro" in words
    server = words[words.index("$IMAGE") + 1 :]
    assert server[:3] == ["vllm", "serve", "acme/m 7b"]
    flags = {name: each.value for name, each in of_command(server).items()}
    assert flags == {
        "--model": "acme/m 7b",
        "--enforce-eager": "false",
        "--max-model-len": "4096",
        "--enable-prefix-caching": "true",
    }


def test_a_proposed_bucket_file_comes_with_whatever_can_bring_it() -> None:
    text = "(1, 512, 0)"
    file = BucketFilePart(variable=FILE_VARIABLE, path="/b/new.txt", text=text)
    made = report(proposal=proposal().model_copy(update={"bucket_file": file}))
    assert f"<<'END'\n{text}\nEND\n" in render_docker(made)
    values = yaml.safe_load(render_helm(made))
    assert values["extraObjects"][0]["data"] == {"new.txt": f"{text}\n"}
    assert {"name": FILE_VARIABLE, "value": "/b/new.txt"} in values["env"]
    # An env file brings none, and a server that doesn't find its file does not start.
    env = render_env(made)
    assert f"# once it is there: {FILE_VARIABLE}=/b/new.txt" in env
    assert not re.search(rf"^{FILE_VARIABLE}=", env, re.MULTILINE)
    for rendered in (render_text(made), render_markdown(made)):
        assert "has to be there first" in rendered


@pytest.mark.parametrize("model", ["***", "org/***", "--help", "-x"])
def test_a_model_that_is_no_name_is_asked_for(model: str) -> None:
    start = report().reports[0]
    settings = [each for each in start.settings if each.name != "--model"]
    made = report(
        settings=[*settings, SettingPart(name="--model", value=model)],
        server=start.server.model_copy(update={"model": model}),
    )
    assert 'vllm serve "$MODEL"' in render_docker(made)
    service = yaml.safe_load(render_compose(made))["services"]["vllm"]
    assert service["command"][2] == "${MODEL}"
    assert yaml.safe_load(render_helm(made))["args"][0] == "MODEL"
    header = read_header(render_env(made))
    assert header is not None
    assert header.model is None


@pytest.mark.parametrize("value", ["1e0", "n", "0o17", "off", "null", "1:30", "~"])
def test_a_value_is_a_text_to_every_reader_of_yaml(value: str) -> None:
    """YAML 1.2 and Go read other plain words as numbers and booleans than PyYAML."""
    made = report(settings=[SettingPart(name="--x-y", value=value)], proposal=None)
    for text in (render_compose(made), render_helm(made)):
        assert re.search(rf'^ *- "{re.escape(value)}"$', text, re.MULTILINE)


def test_the_port_and_flags_of_several_words_are_those_of_the_server() -> None:
    given_ = {
        "--port": "9000",
        "--served-model-name": "a 'b c'",
        "--guess": "-1",
        "--api-key": "***",
    }
    settings = [SettingPart(name=name, value=each) for name, each in given_.items()]
    made = report(settings=settings, proposal=None)
    docker = render_docker(made)
    assert "-p 9000:9000" in docker
    words = shlex.split(docker.partition("docker run")[2].replace("\\\n", ""))
    begin = words.index("--served-model-name")
    assert words[begin + 1 : begin + 3] == ["a", "b c"]
    assert "--guess=-1" in words
    assert "# masked as secrets, so give them yourself: --api-key" in docker
    service = yaml.safe_load(render_compose(made))["services"]["vllm"]
    assert service["ports"] == ["9000:9000"]


def compose_value(text: str) -> str:
    """Undo what compose does with dollars."""
    return text.replace("$$", "$")


def test_compose_is_yaml_and_escapes_dollars() -> None:
    document = yaml.safe_load(render_compose(report()))
    service = document["services"]["vllm"]
    assert service["environment"][RESERVE] == "0.05"
    assert compose_value(service["environment"]["VLLM_ODD"]) == NASTY
    assert not re.search(r"(?<!\$)\$(?!\$)", service["environment"]["VLLM_ODD"])
    assert service["environment"]["HF_TOKEN"] is None
    assert service["command"][:3] == ["vllm", "serve", "acme/m 7b"]
    assert all(isinstance(word, str) for word in service["command"])
    (config,) = service["configs"]
    assert config["target"] == PATH
    assert document["configs"][config["source"]]["content"] == f"{BUCKETS}\n"


def test_helm_mounts_the_bucket_file_and_waits_for_warm_up() -> None:
    text = render_helm(report())
    values: dict[str, Any] = yaml.safe_load(text)
    env = {each["name"]: each["value"] for each in values["env"]}
    assert env[RESERVE] == "0.05"
    assert env["VLLM_ODD"] == NASTY
    assert "HF_TOKEN" not in env
    assert "from a Secret of yours: HF_TOKEN" in text
    (map_,) = values["extraObjects"]
    assert map_["data"] == {"my buckets.txt": f"{BUCKETS}\n"}
    (mount,) = values["volumeMounts"]
    assert (mount["mountPath"], mount["subPath"]) == (PATH, "my buckets.txt")
    assert values["volumes"][0]["configMap"]["name"] == map_["metadata"]["name"]
    probe = values["startupProbe"]
    # Twice the longest start that is expected.
    assert probe["periodSeconds"] * probe["failureThreshold"] == 2 * 120
    assert values["resources"]["limits"]["habana.ai/gaudi"] == 2


def test_a_diff_has_what_is_set_now_and_what_to_set() -> None:
    lines = render_diff(report()).splitlines()
    assert [line for line in lines if line[:1] in {"-", "+"}] == [
        "--- now: a server.log",
        "+++ proposed",
        f"-{RESERVE}=0.1",
        f"+{RESERVE}=0.05",
        "-VLLM_OLD=1",
        "---max-model-len 8192",
        "+--max-model-len 4096",
        f"+VLLM_ODD={NASTY}",
        "+--enable-prefix-caching true",
    ]
    assert " --model acme/m 7b" in lines


@pytest.mark.parametrize(
    ("render", "empty"),
    [
        (render_env, None),
        (render_docker, None),
        (render_compose, {"services": {}}),
        (render_helm, {}),
    ],
)
def test_a_start_of_which_nothing_is_set_gives_no_command(
    render: Any, empty: object
) -> None:
    nothing = Headline(do="Change nothing.", why="All is well.")
    text = render(report(proposal=None, headline=nothing, settings=[]))
    assert ": Change nothing." in text.splitlines()[0]
    assert yaml.safe_load(text) == empty


def test_nothing_to_change_gives_the_command_as_it_is() -> None:
    nothing = Headline(do="Change nothing.", why="All is well.")
    made = report(proposal=None, headline=nothing)
    for render in (render_docker, render_compose, render_helm):
        text = render(made)
        assert ": Change nothing." in text.splitlines()[0]
        assert "# nothing is changed below: it is what the log says is set" in text
        assert "--max-model-len" in text
    assert f"-e {RESERVE}=0.1" in render_docker(made)
    diff = render_diff(made)
    changes = [line for line in diff.splitlines() if line[:1] in {"-", "+"}]
    assert [line[:4] for line in changes] == ["--- ", "+++ "]


@pytest.mark.parametrize(
    "render", [render_docker, render_compose, render_helm, render_diff]
)
def test_few_lines_of_comment_come_before_the_first_useful_one(render: Any) -> None:
    lines = render(report()).splitlines()
    head = [line for line in lines if line.startswith("#")]
    assert lines[: len(head)] == head
    assert len(head) <= 5
    assert head[1] == (
        "# for release plugin-0.26, card gaudi3, model acme/m 7b, tp 2, base "
        "log-0123456789abcdef"
    )


def test_what_is_simulated_or_predicted_says_so_everywhere() -> None:
    for origin, word in (("simulated", "SIMULATED"), ("predicted", "PREDICTED")):
        made = report(origin=origin)
        renders = (render_env, render_docker, render_compose, render_helm, render_diff)
        for render in (*renders, render_text, render_markdown):
            assert word in render(made), (origin, render)


def test_text_is_broken_at_eighty_columns_and_quotes_are_not() -> None:
    left = [LeftPart(name="--max-num-seqs", value="256", why="it is enough " * 20)]
    text = render_text(report(left=left), wrap=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "it is enough" in text
    assert "Steps, all with one restart, the most gain first" in text
    assert "until ready" in text
    assert "80 s to 120 s, learned" in text
    assert text.index("  - Nobody knows.") < text.index("  - One restart, no answers")


def test_a_name_without_a_variable_of_its_own_is_asked_for() -> None:
    made = report(origin="predicted", settings=[], bucket_file=None)
    assert '"$MODEL"' in render_docker(made)
    document = yaml.safe_load(render_compose(made))
    assert document["services"]["vllm"]["command"][2] == "${MODEL}"
    assert "# MODEL stands for your model" in render_helm(made)
    header = read_header(render_env(made))
    assert header is not None
    assert header.model is None


def test_the_document_holds_all_that_is_rendered() -> None:
    made = report()
    again = Report.model_validate(json.loads(made.model_dump_json(by_alias=True)))
    assert again == made
    assert render_helm(again) == render_helm(made)
