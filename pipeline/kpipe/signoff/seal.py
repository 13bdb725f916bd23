"""From a judged run to a bundle's folder. Everything that the verdict is about is copied and held to the digest that the run knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kpipe.contract import LoadedContract
from kpipe.errors import SignoffError
from kpipe.evidence import Evidence
from kpipe.golden import MANIFEST as GOLDEN_MANIFEST
from kpipe.judging.judge import judge
from kpipe.record import RunRecord
from kpipe.signoff.collecting import Collector
from kpipe.signoff.contents import CONTENTS, CONTENTS_VERSION, DECISIONS, ENVIRONMENT, FULL, GOLDEN, MODEL, RUN, SBOM, WAIVERS, Approval, Contents
from kpipe.signoff.decisions import decisions_by_input
from kpipe.signoff.environment import requirement_files, sealed_environment
from kpipe.signoff.files import take_stock
from kpipe.signoff.manifest import MANIFEST, document, id_of
from kpipe.signoff.sbom import sbom
from kpipe.signoff.targets import prepares_of, run_job, sealed_targets
from kpipe.waivers import WaiverSet

NOT_KEPT = ("tensors", "stage.log")
"""What of a stage is made of golden inputs, or may quote them: left behind where only their hashes may be kept."""


@dataclass(frozen=True)
class SealOrder:
    """What is to be sealed."""

    run: Path
    loaded: LoadedContract
    evidence: Evidence
    record: RunRecord
    """As judged now, from the saved evidence."""
    approval: Approval
    goldens: str
    """``full`` or ``hashes``."""
    waivers: WaiverSet
    """What it was judged with."""


def seal(order: SealOrder, into: Path) -> str:
    """Write a bundle into an empty folder; return its id.

    Raises:
        SignoffError: something that the verdict is about is gone or isn't the same any more; every such thing is listed.
        OSError: the folder can't be written.
    """
    collector = Collector(into)
    _collect_run(order, collector)
    _collect_candidate(order, collector)
    _collect_artifacts(order, collector)
    sources = _collect_sources(order, collector)
    _collect_goldens(order, collector)
    _judge_sealed(order, collector)
    if collector.problems:
        raise SignoffError(str(order.run), collector.problems)
    environment = sealed_environment(order.evidence)
    reference, targets, left_out = sealed_targets(order.run, order.evidence, order.record, environment, collector.moved)
    contents = Contents(
        version=CONTENTS_VERSION,
        approval=order.approval,
        run_id=order.evidence.run_id,
        verdict=order.record.verdict,
        headline=order.record.headline,
        profile=order.record.profile,
        judged_on=order.record.judged_on,
        candidate_sha256=order.evidence.candidate_sha256,
        keras_version=order.record.candidate.keras_version,
        contract_sha256=order.loaded.sha256,
        goldens=order.goldens,
        golden_sha256=order.evidence.golden.manifest_sha256,
        reference=reference,
        targets=targets,
        prepares=prepares_of(order.run, order.evidence, collector.moved),
        sources=sources,
        left_out=left_out,
    )
    _write_reports(order, collector)
    collector.write(CONTENTS, document(contents))
    collector.write(ENVIRONMENT, document(environment))
    collector.write(DECISIONS, document(decisions_by_input(order.run, order.loaded.contract, order.evidence)))
    for name, text in requirement_files(environment).items():
        collector.write(name, text.encode())
    collector.write(SBOM, sbom(contents, environment).encode())
    if order.waivers.source:
        collector.write(WAIVERS, order.waivers.text.encode())
    data = document(take_stock(into))
    collector.write(MANIFEST, data)
    return id_of(data)


def _collect_run(order: SealOrder, collector: Collector) -> None:
    """The run's own documents, its stages' answers and what it exported."""
    collector.exact[order.evidence.folder] = RUN
    for name in ("order.json", "evidence.json", "contract.toml"):
        collector.file(order.run / name, f"{RUN}/{name}", "", "the run's")
    for name, folder in sorted(order.evidence.folders.items()):
        if (order.run / folder).is_dir():
            collector.tree(order.run / folder, f"{RUN}/{folder}", without=() if order.goldens == FULL else NOT_KEPT)
        else:
            collector.problems.append(f"stage '{name}' has lost its folder {folder}. Run 'kpipe validate' again.")
    collector.tree(order.run / "artifacts", f"{RUN}/artifacts")


def _collect_candidate(order: SealOrder, collector: Collector) -> None:
    job = run_job(order.run, order.evidence, "reference")
    collector.exact[job.artifact] = MODEL
    collector.file(Path(job.artifact), MODEL, order.evidence.candidate_sha256, "the candidate")


def _collect_artifacts(order: SealOrder, collector: Collector) -> None:
    """Artifacts that were handed in are copied; all are held to what was judged."""
    for target in order.evidence.targets:
        artifact, name = target.artifact, target.plan.name
        if artifact is None:
            continue
        path = Path(artifact.path)
        if target.plan.provided:
            home = f"provided/{name}"
            places = {file: f"{home}/{Path(file).relative_to(path.parent)}" for file in (artifact.path, *artifact.companions)}
            for source, place in places.items():
                _collect_provided(Path(source), place, f"the artifact of target '{name}',", collector)
                collector.exact[source] = place
        moved = [collector.moved(file) for file in (artifact.path, *artifact.companions)]
        collector.hold(moved[0], moved[1:], artifact.sha256, f"the artifact {path.name} of target '{name}'")


def _collect_provided(source: Path, place: str, what: str, collector: Collector) -> None:
    if source.is_dir():
        collector.tree(source, place)
    else:
        collector.file(source, place, "", what)


def _collect_sources(order: SealOrder, collector: Collector) -> dict[str, str]:
    """The user's own code: custom objects, preprocessing, decisions; and tensors of a serving system."""
    evidence = order.evidence
    specs = [spec for plan in (evidence.reference, *(t.plan for t in evidence.targets)) for spec in plan.inputs]
    served = {path for spec in specs if spec.decode == "tensors" for path in spec.files}
    if served and order.goldens != FULL:
        collector.problems.append(
            f"{min(served)} holds tensors that a serving system made of the golden inputs, and hashes of them alone can't be run again. Use --goldens full."
        )
    known = dict(evidence.custom_objects)
    known |= {path: sha256 for spec in specs for path, sha256 in spec.files.items()}
    known |= {path: sha256 for files in evidence.decision_code.values() for path, sha256 in files.items()}
    for number, path in enumerate(sorted(known)):
        collector.exact[path] = f"sources/{number:02d}/{Path(path).name}"
        collector.file(Path(path), collector.exact[path], known[path], "your own file")
    return {path: collector.exact[path] for path in sorted(known)}


def _collect_goldens(order: SealOrder, collector: Collector) -> None:
    golden = order.evidence.golden
    folder = Path(golden.path)
    collector.exact[golden.path] = GOLDEN
    collector.file(folder / GOLDEN_MANIFEST, f"{GOLDEN}/{GOLDEN_MANIFEST}", golden.manifest_sha256, "the golden set's manifest")
    if order.goldens != FULL:
        return
    for item in golden.inputs:
        for name, path in item.files.items():
            collector.file(Path(path), f"{GOLDEN}/{Path(path).relative_to(folder)}", item.sha256[name], f"golden input '{item.id}',")


def _judge_sealed(order: SealOrder, collector: Collector) -> None:
    """What was copied must give the very record: a file that was changed between judging and copying would be sealed otherwise.

    With hashes only, tensors stay behind, and what is judged by them can't be judged again.
    """
    if collector.problems or order.goldens != FULL:
        return
    again = judge(collector.into / RUN, order.loaded, order.evidence, order.waivers)
    if document(again) != document(order.record):
        collector.problems.append(
            f"its saved evidence changed while it was sealed: judged again it is {again.verdict}: {again.headline} Approve it again."
        )


def _write_reports(order: SealOrder, collector: Collector) -> None:
    """The record as judged now, and the reports of it: what lay in the run folder is not believed."""
    from kpipe.report import render_all
    from kpipe.report.pictures import pictures

    collector.write(f"{RUN}/run.json", document(order.record))
    shown = pictures(order.record, Path(order.evidence.golden.path)) if order.goldens == FULL else {}
    for name, text in render_all(order.record, shown).items():
        collector.write(f"{RUN}/{name}", text.encode())
