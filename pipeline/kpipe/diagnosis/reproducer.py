"""The offending layer alone, in a folder that needs nothing of kpipe's: model, tensors, artifact and a script that prints both answers."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kpipe.diagnosis.passes import CantError
from kpipe.diagnosis.result import Reproducer
from kpipe.diagnosis.script import script
from kpipe.judging.answers import ALONE
from kpipe.running.launch import worker_environment
from kpipe.text import first_line
from kpipe_stages.catalog import RUNTIMES
from kpipe_stages.rows import Rows

if TYPE_CHECKING:
    from kpipe.diagnosis.passes import Passes
    from kpipe.judging.layers import LayerDrift
    from kpipe_stages.cutting.orders import IsolateResult
    from kpipe_stages.protocol import Artifact

SCRIPT = "reproduce.py"
LIMIT_S = 180.0
DIFFERS = 3
"""Exit code of a script that has found a difference."""


async def reproduce(passes: Passes, row: LayerDrift, folder: Path) -> Reproducer:
    """Write the folder, run its script once, and say what it said."""
    try:
        await asyncio.to_thread(folder.mkdir)
        alone = await passes.isolate(row.point, folder / "model.keras")
        _write_inputs(passes, row, alone, folder)
        artifact = await _artifact(passes, alone, folder)
        _copy_code(passes, folder)
        (folder / SCRIPT).write_text(script(passes.subject, row, alone, artifact), encoding="utf-8")
    except CantError as error:
        return Reproducer(str(folder), None, f"There is no script: {error}")
    except (OSError, ValueError, LookupError) as error:
        return Reproducer(str(folder), None, f"The reproducer could not be written: {error}")
    return await _run(passes, folder)


def _write_inputs(passes: Passes, row: LayerDrift, alone: IsolateResult, folder: Path) -> None:
    """What reaches the layer: on the worst input, or on all rows of the batch in which it differs."""
    assert row.drift is not None
    rows = [row.drift.row] if passes.choice.mode == ALONE else list(range(len(passes.choice.rows)))
    arrays = {}
    for name, source in alone.feeds.items():
        stored = Rows(_where(passes, source))
        arrays[name] = np.stack([stored[index] for index in rows])  # bfloat16 comes widened, which is exact
    if len(arrays) == 1:
        np.save(folder / "input.npy", next(iter(arrays.values())), allow_pickle=False)
    else:
        np.savez(folder / "input.npz", **arrays)  # type: ignore[arg-type]


def _where(passes: Passes, source: str) -> Path:
    """The reference's value of a point, or the prepared tensors of a model input."""
    names = passes.subject.reference.names
    if source in names:
        return passes.tensors / str(names.index(source))
    outputs = passes.shop.stages["reference.all"].result
    assert outputs is not None
    given = [spec["name"] for spec in outputs.data["signature"]["outputs"]]
    return passes.shop.folder.stages / "reference.all" / "outputs" / ALONE / str(given.index(source))


async def _artifact(passes: Passes, alone: IsolateResult, folder: Path) -> dict[str, Any]:
    """The layer exported for the target, copied into the folder; nothing where the runtime takes the ``.keras`` itself."""
    if passes.format == "keras":
        return {}
    made, _ = await passes.export("layer", folder / "model.keras", alone.sha256)
    name = await asyncio.to_thread(_copy, made, folder)
    return {"file": name, "inputs": dict(made.binding.inputs), "outputs": dict(made.binding.outputs)}


def _copy(made: Artifact, folder: Path) -> str:
    """Copy an artifact with all that belongs to it; its name in the folder."""
    source = Path(made.path)
    if source.is_dir():
        shutil.copytree(source, folder / "saved_model")
        return "saved_model"
    for file in (source, *map(Path, made.companions)):
        shutil.copy2(file, folder / file.name)
    return source.name


def _copy_code(passes: Passes, folder: Path) -> None:
    for position, file in enumerate(passes.subject.reference.trust.custom_objects):
        shutil.copy2(file, folder / f"custom_{position}.py")


async def _run(passes: Passes, folder: Path) -> Reproducer:
    """Run the script as a user would, in a worker's environment."""
    home = passes.shop.folder.stages / "home"
    backend = RUNTIMES[passes.subject.evidence.reference.runtime].keras_backend
    environment = worker_environment(home, backend=backend, threads=0, cache=passes.shop.cache)
    limit = min(LIMIT_S, passes.shop.left())
    try:
        process = await asyncio.create_subprocess_exec(
            passes.subject.plan.python, "-P", SCRIPT, cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )  # fmt: skip
    except OSError as error:
        return Reproducer(str(folder), None, f"{SCRIPT} could not be started: {error}")
    try:
        out, err = await asyncio.wait_for(process.communicate(), limit)
    except TimeoutError:
        return Reproducer(str(folder), None, f"{SCRIPT} took more than {limit:.0f} s")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = out.decode("utf-8", "replace").strip().splitlines()
    if process.returncode not in {0, DIFFERS} or not said:
        lines = [line for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
        return Reproducer(str(folder), None, f"{SCRIPT} ended with {process.returncode}: {first_line(lines[-1] if lines else '')}")
    return Reproducer(str(folder), process.returncode == DIFFERS, first_line(said[-1]))
