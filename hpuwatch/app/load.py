"""``hpuwatch load``: from what was asked for to the document of a run.

The server is asked which model it has and how it counts tokens, its counters are read, the
workload is carried out, and the counters are read again.  Nothing is printed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from hpuwatch.clock import Clock
from hpuwatch.load.calibrate import calibrated, served_model
from hpuwatch.load.client import Client
from hpuwatch.load.counters import between, read
from hpuwatch.load.drive import Run, Watch, carry_out
from hpuwatch.load.endpoint import Endpoint, endpoint_of, get
from hpuwatch.load.figures import detail
from hpuwatch.load.guidellm import GuideLlm
from hpuwatch.load.openfiles import allow_connections
from hpuwatch.load.order import OWN, Order, check_order, workload_of
from hpuwatch.load.result import About, document, tool_document
from hpuwatch.load.target import Target
from hpuwatch.load.tools import Tool, run_tool
from hpuwatch.load.vllm_bench import VllmBench
from hpuwatch.load.workload import totals_of

PLAN_SCHEMA = "hpuwatch.load-plan/1"
TOOLS: Mapping[str, Callable[[], Tool]] = {"vllm": VllmBench, "guidellm": GuideLlm}
_KEYS = ("VLLM_API_KEY", "OPENAI_API_KEY")


def plan_of(order: Order) -> dict[str, object]:
    """Return what would be sent; ``requests`` is None where only answers decide that.

    Raises:
        MissingFileError: there is no such trace.
        InputError: it can't be used.
    """
    workload = workload_of(order)
    listed = workload.requests if isinstance(workload.requests, tuple) else ()
    totals = totals_of(listed)
    return {
        "schema": PLAN_SCHEMA,
        "url": order.url,
        "requests": workload.planned,
        "arrivals": order.arrivals.value,
        "concurrency": order.concurrency,
        "rate": totals.rate if order.rate is None else order.rate,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "prefix_tokens": totals.prefix_tokens,
        "sending_seconds": totals.seconds,
        "ends_after_seconds": order.seconds,
    }


def measure(
    order: Order, environment: Mapping[str, str], clock: Clock, watch: Watch
) -> tuple[dict[str, object], Run | None]:
    """Carry out an order and return the document, and what our own client noted.

    Args:
        order: what was asked for.
        environment: where the server's key is looked for, and what another tool gets.
        clock: where time comes from.
        watch: looks on, many times a second; a text stops the run and says why.

    Raises:
        UsageError: the order makes no sense.
        MissingFileError: there is no such trace.
        InputError: it can't be used.
        ResourceError: the server or the tool can't be had.
    """
    check_order(order)
    endpoint = endpoint_of(order.url, key_in(environment))
    if order.tool != OWN:
        return _measured_by_tool(order, endpoint, environment, clock), None
    workload = workload_of(order)
    allow_connections(order.concurrency or 1)
    target = Target(endpoint, order.model or served_model(endpoint), order.route)
    # Prompts of an earlier run lie in the server's cache: the moment makes them new.
    prompts = calibrated(target, f"{order.seed}/{clock.now()}", order.prompts)
    client = Client(target, prompts, clock.boottime, order.timeout_seconds)
    before = read(endpoint, clock.boottime)
    run = carry_out(workload, client, clock, watch)
    counted = between(before, read(endpoint, clock.boottime))
    about = replace(_about(order, target), units=prompts.units)
    told = document(about, workload, run, counted, clock.now())
    return told | (detail(run) if order.detailed else {}), run


def _measured_by_tool(
    order: Order, endpoint: Endpoint, environment: Mapping[str, str], clock: Clock
) -> dict[str, object]:
    tool = TOOLS[order.tool]()
    target = Target(endpoint, order.model or served_model(endpoint), order.route)
    before = read(endpoint, clock.boottime)
    told = run_tool(tool, target, order, environment)
    counted = between(before, read(endpoint, clock.boottime))
    return tool_document(_about(order, target), tool.name, told, counted, clock.now())


def _about(order: Order, target: Target) -> About:
    said = _said_version(target.endpoint)
    version = said.get("version")
    return About(
        target,
        order,
        version=None if version is None else str(version),
        is_simulated=said.get("simulated") is True,
    )


def _said_version(endpoint: Endpoint) -> Mapping[str, object]:
    """Return what the server says of its version, empty where it doesn't."""
    try:
        told = json.loads(get(endpoint, "/version") or b"null")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def key_in(environment: Mapping[str, str]) -> str | None:
    """Return the server's key, from VLLM_API_KEY or OPENAI_API_KEY."""
    return next((environment[name] for name in _KEYS if environment.get(name)), None)
