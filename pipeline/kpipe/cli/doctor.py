"""``kpipe targets`` and ``kpipe doctor``: what is here, and what stands in the way."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kpipe.errors import Exit

if TYPE_CHECKING:
    from kpipe.record import Environment

KERAS_DEFAULTS = {"floatx": "float32", "epsilon": 1e-07, "backend": "tensorflow", "image_data_format": "channels_last"}
"""What Keras 3 writes into ``keras.json`` when it finds none."""


def run_targets(*, as_json: bool) -> int:
    """One row a runtime."""
    from kpipe.running.plan import missing_distributions
    from kpipe.running.system import this_interpreter
    from kpipe_stages.catalog import RUNTIMES

    here = this_interpreter()
    rows: list[dict[str, Any]] = []
    for row in RUNTIMES.values():
        missing = missing_distributions(row, here)
        versions = {name: here.versions[name] for name in row.distributions if name in here.versions}
        rows.append({"runtime": row.name, "title": row.title, "installed": not missing, "versions": versions, "missing": missing, "extra": row.extra})
    if as_json:
        print(json.dumps(rows, indent=1))
        return Exit.PASS
    for item in rows:
        state = ", ".join(f"{k} {v}" for k, v in item["versions"].items())
        lack = f"missing {', '.join(item['missing'])}: pip install 'keras-kpipe[{item['extra']}]'" if item["missing"] else "installed"
        print("  ".join(part for part in (f"{item['runtime']:<16}", f"{item['title']:<34}", lack, state) if part))
    return Exit.PASS


def run_doctor(*, as_json: bool) -> int:
    """Facts, then what stands in the way; exit 1 where something does."""
    from kpipe.running.system import environment

    facts = environment()
    problems = in_the_way(os.environ, Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")))
    if as_json:
        from kpipe_stages.codec import encode

        print(json.dumps({"environment": encode(facts), "in_the_way": problems}, indent=1))
        return Exit.FAIL if problems else Exit.PASS
    print(f"kpipe {facts.kpipe}, Python {facts.python} ({sys.executable})")
    print(f"{facts.platform}; {facts.cpu}; {facts.cores} cores; {facts.memory_bytes / 2**30:.1f} GiB; load {facts.load_average:.2f}")
    if limits := _limits(facts):
        print(limits)
    print(f"CPU features that change numerics: {', '.join(facts.cpu_features) or 'none'}")
    print(_precision_note(facts.cpu_features))
    for name, version in facts.versions.items():
        print(f"  {name:<16} {version}")
    for problem in problems:
        print(f"in the way: {problem}")
    print("Workers get an environment of their own: nothing above reaches them." if problems else "Nothing stands in the way.")
    return Exit.FAIL if problems else Exit.PASS


def _limits(facts: Environment) -> str:
    """What holds times back on this machine; empty where nothing is known to."""
    parts = [f"frequency governor {facts.governor}"] if facts.governor else []
    parts += [f"a control group allows {facts.processor_limit:g} processors' worth of time"] if facts.processor_limit is not None else []
    parts += [f"a control group allows {facts.memory_limit / 2**20:.0f} MiB"] if facts.memory_limit is not None else []
    return f"Times and memory: {'; '.join(parts)}" if parts else ""


def _precision_note(features: tuple[str, ...]) -> str:
    bf16 = [name for name in features if name in {"avx512_bf16", "amx_bf16"}]
    if not bf16:
        return "OpenVINO computes in float32 by default on this CPU; on CPUs with AVX512-BF16 or AMX it would not."
    return f'With {", ".join(bf16)} OpenVINO computes float32 models in bfloat16 by default: state INFERENCE_PRECISION_HINT = "f32" in the contract and in production.'


def in_the_way(environment: Any, keras_home: Path) -> list[str]:
    """Settings of the caller that would change a script's result (kpipe's workers never see them)."""
    names = (
        "KERAS_BACKEND",
        "KERAS_HOME",
        "PYTHONPATH",
        "PYTHONHOME",
        "JAX_ENABLE_X64",
        "JAX_PLATFORMS",
        "TF_USE_LEGACY_KERAS",
        "TF_ENABLE_ONEDNN_OPTS",
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
    )
    found = [f"{name}={environment[name]} is set" for name in names if environment.get(name)]
    if problem := _keras_config(keras_home / "keras.json"):
        found.append(problem)
    return found


def _keras_config(path: Path) -> str:
    """What a ``keras.json`` changes; empty where it says what Keras would do anyway (Keras writes that file by itself)."""
    if not path.is_file():
        return ""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        changed = {key: value for key, value in values.items() if KERAS_DEFAULTS.get(key, value) != value}
    except (OSError, ValueError, AttributeError) as error:
        return f"{path} can't be read: {error}"
    return f"{path} sets {', '.join(f'{key} = {value}' for key, value in changed.items())}" if changed else ""
