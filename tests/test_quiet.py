"""Loads in fresh processes: how many, under which names, and what is asked of each. The worker's part is replaced; its own tests run real ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kpipe.evidence import Ending
from kpipe.loads import CHEAP_LEAST, LEAST, MOST
from kpipe.running.quiet import quiet_loads
from kpipe_stages.protocol import LoadTimes

from .sample_run import result, run_result, stage

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Job:
    """What of a run job matters here."""

    load_only: bool = False
    lean_import: bool = True
    drop_pages: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)


class Shop:
    """Answers every order with the next of the given seconds; ``failing`` names a stage that fails."""

    def __init__(self, folder: Path, *seconds: float, failing: str = "") -> None:
        self.folder = SimpleNamespace(stages=folder)
        self.contract = SimpleNamespace(timing=SimpleNamespace(load_seconds=1e9))
        self.orders: list[Any] = []
        self._seconds = seconds
        self._failing = failing

    def left(self) -> float:
        return 1e9

    def order(self, name: str, stage_name: str, job: Job, **kept: Any) -> Any:
        assert kept["own_process"]
        return SimpleNamespace(name=name, stage=stage_name, job=job)

    async def once(self, order: Any) -> Any:
        self.orders.append(order)
        if order.name == self._failing:
            return stage(order.name, None, Ending.CRASHED)
        seconds = self._seconds[(len(self.orders) - 1) % len(self._seconds)]
        return stage(order.name, result("run_x", replace(run_result(), load=LoadTimes(0.0, seconds, 0.0, lean=False))))

    @property
    def names(self) -> list[str]:
        return [order.name for order in self.orders]


def loaded(shop: Any, *, runtime: str = "litert", job: Job | None = None, limit: float | None = None, **how: Any) -> list[str]:
    plan: Any = SimpleNamespace(name="x", runtime=runtime)
    given: Any = job or Job()
    asyncio.run(quiet_loads(shop, plan, given, limit, **({"thorough": False} | how)))
    for order in shop.orders:
        assert order.job.load_only
        assert not order.job.lean_import
    return list(shop.names)


def test_one_load_is_enough_where_it_settles_the_limit(tmp_path: Path) -> None:
    assert loaded(Shop(tmp_path, 1.0), limit=5.0) == ["load.x"]
    assert loaded(Shop(tmp_path, 1.0)) == ["load.x"]


def test_loads_go_on_until_the_limit_is_decided_and_not_for_ever(tmp_path: Path) -> None:
    assert loaded(Shop(tmp_path, 1.0), limit=0.5) == ["load.x", "load.x.2", "load.x.3"]
    assert len(loaded(Shop(tmp_path, 1.0, 2.0), limit=1.5)) == MOST


def test_a_load_that_was_cold_and_alone_already_counts(tmp_path: Path) -> None:
    first = LoadTimes(0.0, 1.0, 0.0, lean=False)
    assert loaded(Shop(tmp_path, 1.0), limit=5.0, first=first) == []
    assert loaded(Shop(tmp_path, 1.0), limit=0.5, first=first) == ["load.x.2", "load.x.3"]


def test_a_load_that_fails_is_the_last(tmp_path: Path) -> None:
    assert loaded(Shop(tmp_path, 1.0, failing="load.x.2"), limit=0.5) == ["load.x", "load.x.2"]


def test_sign_off_asks_for_the_spread_a_cold_file_and_the_compile_cache(tmp_path: Path) -> None:
    dear = Shop(tmp_path, 4.0)
    assert loaded(dear, thorough=True)[LEAST:] == ["load.x.cold_file"]
    assert [order.job.drop_pages for order in dear.orders] == [False] * LEAST + [True]
    cheap = Shop(tmp_path, 0.1)
    assert loaded(cheap, runtime="openvino", thorough=True)[CHEAP_LEAST:] == ["load.x.cold_file", "load.x.filling", "load.x.cached"]
    filling, cached = (order.job.settings for order in cheap.orders[-2:])
    assert filling == cached == {"CACHE_DIR": str(tmp_path / "compile_cache" / "x")}


@pytest.mark.parametrize("where", ["settings", "chosen"])
def test_a_cache_that_the_contract_sets_is_left_alone(tmp_path: Path, where: str) -> None:
    job = Job(**{where: {"CACHE_DIR": "mine"}})
    assert loaded(Shop(tmp_path, 0.1), runtime="openvino", job=job, thorough=True)[-1] == "load.x.cold_file"


def test_without_a_filled_cache_none_is_measured(tmp_path: Path) -> None:
    shop = Shop(tmp_path, 0.1, failing="load.x.filling")
    assert loaded(shop, runtime="openvino", thorough=True)[-1] == "load.x.filling"
