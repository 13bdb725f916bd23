"""``sbom.cdx.json``: a CycloneDX bill of materials of the model, its artifacts and the libraries that it was judged with."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclonedx.model import Property
    from cyclonedx.model.component import Component

    from kpipe.signoff.contents import Contents, SealedEnvironment


def sbom(contents: Contents, environment: SealedEnvironment) -> str:
    """The document, CycloneDX 1.6 in JSON.

    The model is a ``machine-learning-model``, every artifact a ``file`` with its digest, every distribution of every interpreter a
    ``library`` with its package URL. A folder's digest is kpipe's own, over the digests of its files, and stands in a property.
    """
    from cyclonedx.model.bom import Bom
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    bom = Bom()
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, f"kpipe:{contents.run_id}:{contents.candidate_sha256}:{contents.approval.at}")
    bom.metadata.timestamp = datetime.fromisoformat(contents.approval.at)
    model = _model(contents)
    bom.metadata.component = model
    bom.metadata.tools.components.add(_library(f"keras-kpipe=={contents.approval.kpipe}", {}, indexed=False))
    parts = [*_artifacts(contents), *_libraries(environment)]
    bom.components.update(parts)
    bom.register_dependency(model, parts)
    text: str = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)
    return text + "\n"


def _model(contents: Contents) -> Component:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    return Component(
        type=ComponentType.MACHINE_LEARNING_MODEL,
        name=contents.approval.product,
        version=contents.candidate_sha256[:12],
        bom_ref="candidate",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=contents.candidate_sha256)],
        properties=_properties({"kpipe:keras_version": contents.keras_version, "kpipe:contract_sha256": contents.contract_sha256}),
    )


def _artifacts(contents: Contents) -> Iterator[Component]:
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.component import Component, ComponentType

    for target in contents.targets:
        whole = target.format == "saved_model" or target.companions
        yield Component(
            type=ComponentType.FILE,
            name=target.artifact,
            bom_ref=f"target-{target.name}",
            hashes=[] if whole else [HashType(alg=HashAlgorithm.SHA_256, content=target.sha256)],
            properties=_properties({"kpipe:target": target.name, "kpipe:runtime": target.runtime, "kpipe:digest": target.sha256}),
        )


def _libraries(environment: SealedEnvironment) -> Iterator[Component]:
    for name, held in environment.interpreters.items():
        for line in held.requirements:
            yield _library(line, {"kpipe:interpreter": name})
        for line in held.local:
            yield _library(line, {"kpipe:interpreter": name, "kpipe:source": "not from an index"}, indexed=False)


def _library(line: str, properties: dict[str, str], *, indexed: bool = True) -> Component:
    """A distribution given as ``name==version``."""
    from cyclonedx.model.component import Component, ComponentType
    from packageurl import PackageURL

    name, _, version = line.partition("==")
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        bom_ref=" ".join((*properties.values(), line)),
        purl=PackageURL("pypi", None, name, version) if indexed else None,
        properties=_properties(properties),
    )


def _properties(values: dict[str, str]) -> list[Property]:
    from cyclonedx.model import Property

    return [Property(name=name, value=value) for name, value in values.items() if value]
