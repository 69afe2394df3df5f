"""The schema in the repository is ONNX's own, and the Rust types are those of the schema: each field's number and kind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")

from google.protobuf.descriptor import Descriptor, FieldDescriptor

CRATE = Path(__file__).resolve().parents[2] / "crates" / "onnx"
MESSAGE = re.compile(r"pub struct (\w+) \{(.*?)\n\s*\}\n", re.DOTALL)
FIELD = re.compile(r"#\[prost\((.*?)\)\]\s*pub (?:r#)?(\w+):", re.DOTALL)


def test_the_schema_is_the_packages() -> None:
    official = Path(onnx.__file__).parent / "onnx.proto"
    assert (CRATE / "schema" / "onnx.proto").read_bytes() == official.read_bytes()


def messages(found: list[Descriptor]) -> list[Descriptor]:
    """With those inside others."""
    return [inner for one in found for inner in (one, *messages(list(one.nested_types)))]


def numbers(message: Descriptor) -> set[tuple[int, str]]:
    """Number and name of each field; a choice between fields is one field in Rust, with all their numbers."""
    single = {(field.number, field.name) for field in message.fields if field.containing_oneof is None}
    return single | {(field.number, choice.name) for choice in message.oneofs for field in choice.fields}


def rust(text: str) -> dict[str, set[tuple[int, str]]]:
    """The same of the generated file, by message."""
    found: dict[str, set[tuple[int, str]]] = {}
    for name, body in MESSAGE.findall(text):
        fields = set()
        for told, field in FIELD.findall(body):
            tags = re.search(r'tags? = "([\d, ]+)"', told)
            assert tags, told
            fields |= {(int(tag), field) for tag in tags[1].split(",")}
        found[name] = found.get(name, set()) | fields
    return found


def test_the_rust_types_have_the_schemas_fields() -> None:
    official = messages(list(onnx.onnx_ml_pb2.DESCRIPTOR.message_types_by_name.values()))
    expected: dict[str, set[tuple[int, str]]] = {}
    for message in official:
        expected[message.name] = expected.get(message.name, set()) | numbers(message)
    # The types of sequences and maps are in the schema of classical machine learning alone.
    found = rust((CRATE / "src" / "export" / "schema.rs").read_text(encoding="utf-8"))
    assert len(found) > 20
    for name, fields in found.items():
        assert fields == expected[name], name
    assert {"ModelProto", "GraphProto", "NodeProto", "TensorProto", "AttributeProto"} <= set(found)


@pytest.mark.parametrize("field", ["raw_data", "ints", "dims"])
def test_lists_of_numbers_are_packed_as_the_schema_says(field: str) -> None:
    text = (CRATE / "src" / "export" / "schema.rs").read_text(encoding="utf-8")
    told = next(told for told, name in FIELD.findall(text) if name == field)
    of = {
        field.name: field for message in (onnx.TensorProto, onnx.AttributeProto) for field in message.DESCRIPTOR.fields
    }
    repeated = (
        of[field].label == FieldDescriptor.LABEL_REPEATED if hasattr(of[field], "label") else of[field].is_repeated
    )
    assert ("repeated" in told) == repeated
    assert ('packed = "false"' in told) == (repeated and not of[field].GetOptions().packed)
