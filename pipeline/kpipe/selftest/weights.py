"""Faults in weights: of the model that the artifact was made from, or of the candidate itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kpipe.selftest.fault import Family, Fault, FileFault, edit

if TYPE_CHECKING:
    from kpipe.selftest.fault import Setup, Table
    from kpipe_stages.plant_orders import Edit

ARTIFACT = frozenset({"export"})
CANDIDATE = frozenset({"archive", "decision", "golden"})


def _made(name: str, change: Edit, *subjects: str, runtime: str = "litert", edges: frozenset[str] = ARTIFACT) -> Fault:
    """The artifact was made from a model with other weights."""
    return Fault(name, Family.WEIGHTS, edges, frozenset(subjects), runtime, FileFault("keras", (change,)))


def _candidate(name: str, change: Edit, *subjects: str) -> Fault:
    """The candidate itself has other weights than the ones that were approved."""
    return Fault(name, Family.WEIGHTS, CANDIDATE, frozenset(subjects), file=FileFault("keras", (change,), candidate=True))


def pinned(contract: Table, _target: str, setup: Setup) -> None:
    """The contract names the healthy candidate's digest."""
    contract.setdefault("model", {})["sha256"] = setup.record.candidate.sha256


FAULTS = (
    *(
        _made(f"one weight off by {name}", edit("one_weight", factor=1.0 + size), "swatch")
        for name, size in (("1e-7", 1.2e-7), ("1e-6", 1e-6), ("1e-5", 1e-5), ("1e-4", 1e-4), ("1e-3", 1e-3), ("1e-2", 1e-2), ("a half", 0.5))
    ),
    _made("one weight with the other sign", edit("one_weight", factor=-1.0), "tokens", runtime="onnxruntime"),
    *(
        _made(f"stale weights: {name} towards noise", edit("stale", amount=size), "tokens")
        for name, size in (("0.001 %", 1e-5), ("1 %", 1e-2), ("20 %", 0.2))
    ),
    _made("batch normalisation's statistics reset", edit("reset_statistics"), "swatch"),
    _made("two weights of equal shape exchanged", edit("swap_alike"), "tokens"),
    _made("two classes' columns exchanged", edit("swap_columns"), "tokens", edges=ARTIFACT | {"signature"}),
    _made("two rows of the last kernel exchanged", edit("swap_rows"), "swatch", runtime="onnxruntime"),
    _made("NaN in the artifact's weights", edit("nan"), "swatch"),
    _made("small weights set to zero", edit("flush_small", below=1e-2), "tokens"),
    _made("denormals for small weights", edit("denormal"), "tokens", runtime="onnxruntime"),
    _made("weights rounded to float16", edit("rounded", to="float16"), "pair"),
    _made("weights rounded to bfloat16", edit("rounded", to="bfloat16"), "swatch"),
    _made("weights rounded to int8", edit("rounded", to="int8"), "pair", runtime="onnxruntime"),
    _made("a bias lost", edit("zero_bias"), "pair"),
    _made("a channel lost", edit("zero_channel"), "swatch"),
    _made("a kernel transposed", edit("transpose"), "swatch"),
    _made("last layer doubled", edit("scale_all", factor=2.0), "tokens"),
    _candidate("NaN in the candidate", edit("nan"), "pair"),
    _candidate("candidate of an early epoch", edit("stale", amount=0.5), "tokens"),
    _candidate("candidate's classes exchanged", edit("swap_columns"), "tokens"),
    _candidate("candidate's statistics reset", edit("reset_statistics"), "swatch"),
    Fault(
        "another candidate than the contract names",
        Family.WEIGHTS,
        frozenset({"archive"}),
        frozenset({"pair"}),
        file=FileFault("keras", (edit("one_weight", factor=1.0 + 1.2e-7),), candidate=True),
        contract=pinned,
    ),
)
