"""The text of ``reproduce.py``: keras, numpy and the runtime, nothing of kpipe's. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kpipe.judging.floor import K
from kpipe_stages.catalog import RUNTIMES

if TYPE_CHECKING:
    from kpipe.diagnosis.subject import Subject
    from kpipe.judging.layers import LayerDrift
    from kpipe_stages.cutting.orders import IsolateResult

TEMPLATE = "reproduce.py.j2"
SAME = {"openvino_ir": "openvino"}
"""Runtimes whose answer is asked for by another's words."""


def script(subject: Subject, row: LayerDrift, alone: IsolateResult, artifact: dict[str, Any]) -> str:
    """The whole script.

    Args:
        subject: the run and its target.
        row: the layer.
        alone: the model of the layer alone.
        artifact: ``file``, ``inputs`` and ``outputs`` of what was exported of it; empty where the runtime takes the ``.keras`` itself.
    """
    assert row.drift is not None
    runtime, plan, trust = RUNTIMES[subject.plan.runtime], subject.plan, subject.reference.trust
    backend = RUNTIMES[subject.evidence.reference.runtime].keras_backend or "tensorflow"
    title = f"Layer {row.layer!r} ({row.class_name}) alone: Keras on {backend} against {runtime.title}."
    exact, wide = "float" not in row.dtype, "float32" if row.dtype == "bfloat16" else row.dtype
    keras_target = runtime.artifact == "keras"
    return _render(
        SAME.get(plan.runtime, plan.runtime),
        title=title.replace("\\", "/").replace('"', "'"),
        backend=backend,
        needs=runtime.distributions[0],
        settings={**plan.chosen, **plan.settings},
        allowed=0.0 if exact else K * row.drift.floor,
        floors=f"{K:g}",
        inputs=list(alone.feeds),
        modules="".join(f"    __import__({name!r})\n" for name in trust.allow_modules),
        safe=not trust.allow_lambda,
        output=alone.output,
        wide=wide,
        threads=plan.threads,
        artifact=artifact,
        keras_target=keras_target,
        ask=f'ask_keras({runtime.keras_backend!r}, "target")' if keras_target else "target()",
        runtime=runtime.title,
    )


def _render(words: str, **values: Any) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(  # noqa: S701 - the text is Python, and every value in it goes through repr
        loader=PackageLoader("kpipe.diagnosis", "templates"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["repr"] = repr
    target = f"target_{words}.py.j2"
    if target not in environment.list_templates():
        raise LookupError(f"no script is known for the runtime {words}; add {target} beside {TEMPLATE}")
    return environment.get_template(TEMPLATE).render(target=target, **values)
