"""A finished run with many more targets than were run, to judge: ``widen_run.py RUN OUT CELLS``. Prints how many cells it holds.

Each target more is a copy of one that was run, under a name of its own: its answers lie there again, in files of their own (hard links), and
are read, checked by their digests, compared and decided as any others.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path


def main() -> None:
    """Write OUT with as many targets as CELLS takes, and ``wide.toml`` in it, the contract that names them."""
    run, out, wanted = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    shutil.copytree(run, out, copy_function=os.link)
    path = out / "evidence.json"
    evidence = json.loads(path.read_text(encoding="utf-8"))
    record = json.loads((run / "run.json").read_text(encoding="utf-8"))
    cells = {target["name"]: sum(target["cells"].values()) for target in record["targets"]}
    targets, stages = list(evidence["targets"]), {stage["name"]: stage for stage in evidence["stages"]}
    lines, held, number = [], sum(cells.values()), 0
    while held < wanted:
        source = targets[number % len(targets)]
        name, copy = source["plan"]["name"], f"more_{number}"
        evidence["targets"].append({**source, "plan": {**source["plan"], "name": copy}})
        stage = {**stages[f"run.{name}"], "name": f"run.{copy}"}
        evidence["stages"].append(stage)
        evidence["folders"][stage["name"]] = f"stages/{stage['name']}"
        shutil.copytree(run / "stages" / f"run.{name}", out / "stages" / stage["name"], copy_function=os.link)
        lines += [f"[targets.{copy}]", f'runtime = "{source["plan"]["runtime"]}"']
        held, number = held + cells[name], number + 1
    path.unlink()  # a link to the run's own
    path.write_text(json.dumps(evidence), encoding="utf-8")
    text = (run / "contract.toml").read_text(encoding="utf-8")
    (out.parent / f"{out.name}.toml").write_text("\n".join([text, *lines]) + "\n", encoding="utf-8")
    print(f"cells {held}")


if __name__ == "__main__":
    main()
