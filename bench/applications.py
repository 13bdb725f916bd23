"""``python bench/applications.py [NAME...]``: models of the usual sizes through `kpipe preflight`, with the memory that all of its processes take together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
NAMES = ("mobilenet_v2", "efficientnet_b0", "resnet50", "transformer", "bidirectional_lstm")
LIMIT = 6 * 2**30
EVERY_S = 0.25
PAGE = os.sysconf("SC_PAGE_SIZE")


def children(pid: int) -> list[int]:
    """A process and all below it: workers are in sessions of their own, so by their parents."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = {pid}, {pid}
    while new := {child for child, parent in parents.items() if parent in new} - found:
        found |= new
    return sorted(found)


def memory(pid: int) -> tuple[int, int]:
    """Bytes of the whole tree, shared pages counted in shares, and of its largest process."""
    sizes = []
    for one in children(pid):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        sizes.append(next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:")), 0))
    return sum(sizes), max(sizes, default=0)


def run(name: str, folder: Path, jobs: int) -> dict[str, object]:
    words = [
        sys.executable,
        "-P",
        "-m",
        "kpipe",
        "preflight",
        f"{HERE / 'architectures.py'}:{name}",
        "--out",
        str(folder / name),
        "--json",
        "--jobs",
        str(jobs),
    ]
    start, peak, largest = time.perf_counter(), 0, 0
    with (folder / f"{name}.json").open("w") as out, subprocess.Popen(words, stdout=out) as process:
        while process.poll() is None:
            total, one = memory(process.pid)
            peak, largest = max(peak, total), max(largest, one)
            time.sleep(EVERY_S)
    text = (folder / f"{name}.json").read_text()
    answer = json.loads(text) if text else {"answer": f"exit code {process.returncode}", "targets": [], "parameters": 0}
    return {"name": name, "seconds": time.perf_counter() - start, "peak": peak, "largest": largest, "code": process.returncode, **answer}


def main(names: list[str]) -> int:
    jobs = int(os.environ.get("JOBS", "2"))
    fine = True
    print(
        "| model | parameters | answer | required targets | largest drift | seconds | peak, all processes | largest process |\n|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory(prefix="kpipe-bench-") as folder:
        for name in names or NAMES:
            row = run(name, Path(folder), jobs)
            targets = [target for target in row["targets"] if target["required"]]
            good = sum(target["answer"] == "would convert and agree" for target in targets)
            drift = max((target["drift"] or 0.0 for target in targets), default=0.0)
            print(
                f"| {name} | {row['parameters']:,} | {row['answer']} | {good} of {len(targets)} | {drift:.1e} | {row['seconds']:.0f} | "
                f"{row['peak'] / 2**30:.1f} GiB | {row['largest'] / 2**30:.1f} GiB |",
                flush=True,
            )
            for target in row["targets"]:
                if target["answer"] != "would convert and agree":
                    print(f"    {name}: {target['name']}: {target['answer']}", file=sys.stderr, flush=True)
            for problem in row.get("problems", []):
                if problem["error"]:
                    print(f"    {name}: {problem['target']}: {problem['code']} {problem['cause']}", file=sys.stderr, flush=True)
            fine = fine and row["code"] == 0 and row["peak"] <= LIMIT
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
