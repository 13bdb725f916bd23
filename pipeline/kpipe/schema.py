"""The published JSON Schema of ``run.json``, made from the record's dataclasses: ``python -m kpipe.schema > docs/schema/run.schema.json``.

Draft 2020-12. It accepts what `kpipe_stages.codec` writes and refuses what its decoder refuses: unknown fields, missing fields, other
types. A float that is not finite is one of the strings ``NaN``, ``Infinity`` and ``-Infinity``.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from kpipe.record import SCHEMA_VERSION, RunRecord

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class _Generator(GenerateJsonSchema):
    """Pydantic's schema, as strict as the codec and with the fields' own docstrings."""

    schema_dialect = DIALECT

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:  # noqa: ARG002 - the parent's signature
        return {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        described = super().dataclass_schema(schema)
        described["additionalProperties"] = False
        for name, text in field_docstrings(schema["cls"]).items():
            described["properties"][name]["description"] = text
        return described

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the parent's signature
        return False


def field_docstrings(kind: type) -> dict[str, str]:
    """Field name to the docstring that stands under it in the class's source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, below in itertools.pairwise(body):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(below.value.value.split())  # type: ignore[attr-defined]
    return found


def run_schema() -> dict[str, Any]:
    """The schema of one `kpipe.record.RunRecord` as `kpipe_stages.codec` writes it."""
    schema = TypeAdapter(RunRecord).json_schema(schema_generator=_Generator)
    schema["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {"$schema": DIALECT, "$id": f"urn:kpipe:run:{SCHEMA_VERSION}", **schema, "title": "kpipe run record"}


def schema_text() -> str:
    """The text of ``docs/schema/run.schema.json``."""
    return json.dumps(run_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
