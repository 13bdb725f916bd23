"""``results.sarif``: SARIF 2.1.0 for code scanning services.

Besides the findings it holds a result wherever the verdict isn't PASS and one for every required target that isn't checked: a service
that only counts results must not read silence as success. SARIF has no severity between runs, so the errors of a target that isn't
required are written as warnings, with ``required: false``.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from kpipe.codes import CODES
from kpipe.errors import Exit
from kpipe.findings import Severity
from kpipe.record import CellStatus, Verdict
from kpipe.report import summary, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kpipe.codes import Code
    from kpipe.findings import Finding
    from kpipe.record import RunRecord, TargetRecord

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_RESULTS = 5000
"""Code scanning services refuse more results a run; errors come first, and what is left out is a result of its own."""

VERDICT_RULE = "kpipe-verdict"
UNCHECKED_RULE = "kpipe-unchecked"

_EXITS = {Verdict.PASS: Exit.PASS, Verdict.FAIL: Exit.FAIL, Verdict.INCOMPLETE: Exit.INCOMPLETE}
_TEXT_LIMIT = 4000


def render_sarif(record: RunRecord, codes: Mapping[str, Code] = CODES) -> str:
    """The log as JSON text: one run, every known code as a rule, every finding as a result."""
    results = [*_verdict_results(record), *_finding_results(record)]
    rules = _rules(codes, results)
    index = {rule["id"]: i for i, rule in enumerate(rules)}
    for result in results:
        result["ruleIndex"] = index[result["ruleId"]]
    run = {
        "tool": {"driver": {"name": "kpipe", "semanticVersion": text.clean(record.environment.kpipe), "rules": rules}},
        "automationDetails": {"id": "kpipe/validate/"},
        "invocations": [
            {
                # The tool ran to its end; INCOMPLETE is the one verdict that says that it could not do its work.
                "executionSuccessful": record.verdict is not Verdict.INCOMPLETE,
                "exitCode": int(_EXITS[record.verdict]),
                **({"startTimeUtc": started} if (started := text.utc(record.started)) else {}),
            }
        ],
        "originalUriBaseIds": {
            "RUN": {"description": {"text": "The run folder."}},
            "CALLER": {"description": {"text": "The folder that kpipe was called in."}},
        },
        "columnKind": "unicodeCodePoints",
        "properties": {
            "verdict": record.verdict.value,
            "headline": text.clean(record.headline),
            "caveats": [text.clean(c) for c in record.caveats],
            "waivers": list(summary.waiver_lines(record)),
        },
        "results": results,
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _verdict_results(record: RunRecord) -> list[dict[str, Any]]:
    results = []
    if not summary.trusted(record):
        message = " ".join([f"{record.verdict.value}: {record.headline}", *summary.warnings_first(record)])
        results.append(_result(VERDICT_RULE, "error", message, _candidate(record), ""))
    for target in record.targets:
        if target.required and summary.status_of(target) is CellStatus.UNCHECKED:
            message = f"{target.name} was not checked: {target.reason or 'no reason was given'}"
            results.append(_result(UNCHECKED_RULE, "error", message, _candidate(record), target.name))
    return results


def _finding_results(record: RunRecord) -> list[dict[str, Any]]:
    ordered = [f for found in summary.by_severity(record.findings).values() for f in found]
    ordered.sort(key=lambda f: not f.waived)  # what somebody answers for is read first
    targets = {t.name: t for t in record.targets}
    seen: Counter[str] = Counter()
    results = []
    for finding in ordered[:MAX_RESULTS]:
        subject = f"{finding.code}\0{finding.target}\0{finding.place}"
        location = _location(record, finding, targets.get(finding.target))
        results.append(_result(finding.code, _level(finding), f"{finding.cause} {finding.remedy}", location, subject, seen[subject], finding))
        seen[subject] += 1
    if (left := len(ordered) - MAX_RESULTS) > 0:
        results.append(_result(VERDICT_RULE, "error", f"{left} more findings are in run.json.", _candidate(record), "left out"))
    return results


def _level(finding: Finding) -> str:
    if finding.severity is Severity.ERROR and not finding.required:
        return "warning"
    return finding.severity.value


def _result(
    rule: str, level: str, message: str, location: dict[str, Any], subject: str, nth: int = 0, finding: Finding | None = None
) -> dict[str, Any]:
    """One result. The fingerprint is of code, target and place, never of numbers: the same problem tomorrow is the same problem."""
    print_ = hashlib.sha256(f"{rule}\0{subject}\0{nth}".encode(errors="surrogatepass")).hexdigest()[:32]
    result: dict[str, Any] = {
        "ruleId": text.clean(rule),
        "level": level,
        "message": {"text": text.clean(message[:_TEXT_LIMIT], multiline=True)},
        "locations": [location],
        "partialFingerprints": {"kpipeSubject/v1": print_},
    }
    if finding is not None:
        result["properties"] = {"target": text.clean(finding.target), "place": text.clean(finding.place), "required": finding.required}
        if finding.waived:
            result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": text.clean(finding.waived)}]
    return result


def _location(record: RunRecord, finding: Finding, target: TargetRecord | None) -> dict[str, Any]:
    """The file that the finding is about: the golden manifest, the artifact, or the candidate."""
    logical = "/".join(filter(None, (finding.target, summary.place_of(finding))))
    if finding.code.startswith("KP1") and record.golden.path:
        manifest = f"{record.golden.path}/manifest.toml" if record.golden.kind == "raw" else record.golden.path
        return _physical(manifest, "CALLER", logical)
    if target is not None and target.artifact is not None and target.artifact.format != "keras":
        return _physical(target.artifact.path, "CALLER" if target.artifact.provided else "RUN", logical)
    return _physical(record.candidate.path, "CALLER", logical)


def _candidate(record: RunRecord) -> dict[str, Any]:
    return _physical(record.candidate.path, "CALLER", "")


def _physical(path: str, base: str, logical: str) -> dict[str, Any]:
    location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": relative_uri(path), "uriBaseId": base}, "region": {"startLine": 1}}}
    if logical:
        location["logicalLocations"] = [{"fullyQualifiedName": text.shorten(logical, 500)}]
    return location


def relative_uri(path: str) -> str:
    """``path`` as a relative URI. Of an absolute one only the name: where a file lies on this machine is no one else's business."""
    posix = path.replace("\\", "/") if PureWindowsPath(path).drive else path
    pure = PurePosixPath(posix)
    if pure.is_absolute() or PureWindowsPath(path).drive:
        pure = PurePosixPath(pure.name)
    parts = [part for part in pure.parts if part not in ("..", ".")]
    uri = "/".join(quote(part.encode("utf-8", "surrogatepass"), safe="") for part in parts)
    return uri or "model.keras"


def _rules(codes: Mapping[str, Code], results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every code of the table, then the two of this module, then what a record of another version names."""
    rules = [_rule(c.code, c.title, c.meaning, c.remedy, c.severity.value) for c in codes.values()]
    rules.append(_rule(VERDICT_RULE, "The verdict", "The verdict of the run is not PASS.", "See the findings.", "error"))
    rules.append(_rule(UNCHECKED_RULE, "Not checked", "A required target was not checked, so it has not passed.", "Let the target run.", "error"))
    known = {rule["id"] for rule in rules}
    unknown = dict.fromkeys(r["ruleId"] for r in results if r["ruleId"] not in known)
    rules += [_rule(name, name, "A code that this version of kpipe does not know.", "See its version's documentation.", "error") for name in unknown]
    return rules


def _rule(code: str, title: str, meaning: str, remedy: str, level: str) -> dict[str, Any]:
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in title.replace("-", " ").split() if word.isalnum()) or code,
        "shortDescription": {"text": f"{title}."},
        "fullDescription": {"text": meaning},
        "help": {"text": f"{remedy} More in docs/findings/{code}.md."},
        "defaultConfiguration": {"level": level},
    }
