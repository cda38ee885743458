"""A first configuration where there is no log: from a model's file and a card's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from hpuwatch.advise.document import Report
from hpuwatch.advise.plan.first import first_plan
from hpuwatch.advise.plan.first_report import first_report
from hpuwatch.advise.plan.traffic import read_traffic
from hpuwatch.advise.plan.wish import Wish
from hpuwatch.app.server_inputs import read_text
from hpuwatch.errors import InputError
from hpuwatch.gaudi.cards import card_called
from hpuwatch.gaudi.modelshape import read_model
from hpuwatch.gaudi.releases import NEWEST


def first_report_of(
    model: str,
    card: str,
    tensor_parallel: int = 1,
    traffic: str | None = None,
    release: str | None = None,
) -> Report:
    """Return the report of a first configuration.

    Args:
        model: path of a ``config.json``, or of its folder.
        card: ``gaudi2`` or ``gaudi3``.
        tensor_parallel: cards that the model is divided among.
        traffic: what it is to bear, in words.
        release: as a user names it, None for the newest.

    Raises:
        MissingFileError: the model's file can't be read.
        InputError: it is no JSON, or no model's.
        UsageError: the traffic can't be read.
        ConfigError: the card, the release or the kind of model is unknown, or the traffic
            exceeds what the model was made for.
    """
    wish = Wish(
        read_model(config_of_model(model)),
        card_called(card),
        tensor_parallel,
        release or NEWEST,
        None if traffic is None else read_traffic(traffic),
    )
    return Report(reports=[first_report(wish, first_plan(wish), model)])


def config_of_model(path: str) -> Mapping[str, object]:
    """Return a model's parsed ``config.json``, by its path or its folder's.

    Raises:
        MissingFileError: it can't be read.
        InputError: it is no JSON, or no mapping.
    """
    file = Path(path)
    if file.is_dir():
        file /= "config.json"
    try:
        document = json.loads(read_text(file, "utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"--model {file} is no JSON ({error})") from None
    if not isinstance(document, dict):
        raise InputError(f"--model {file} is no config.json of a model")
    return document
