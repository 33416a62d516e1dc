"""OpenAI's request lines are understood or refused by name."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from api_cli.batch_format import parse_request
from api_cli.inputs import Instruction, read_inputs
from api_cli.record import Record
from db.specs import Message, Overrides

USER = [{"role": "user", "content": "Cześć"}]


def request(url: str = "/v1/chat/completions", **body: Any) -> Record:
    body = {"messages": USER, **body} if url == "/v1/chat/completions" else body
    return parse_request({"custom_id": "a", "method": "POST", "url": url, "body": body})


def codes(record: Record) -> list[str]:
    return [fault.code for fault in record.faults]


def test_a_chat_request_becomes_messages_and_overrides() -> None:
    """Decoding options of the body are the item's own."""
    record = request(
        model="gpt-4o-mini", max_completion_tokens=50, temperature=1, top_p=0.9, seed=7, stop="KONIEC", n=1
    )

    assert record.faults == ()
    assert (Message(role="user", content="Cześć"),) == record.messages
    assert Overrides(max_tokens=50, temperature=1.0, top_p=0.9, seed=7, stop=("KONIEC",)) == record.overrides
    assert record.model == "gpt-4o-mini"


def test_a_completion_request_is_continued_raw() -> None:
    """/v1/completions has no chat template."""
    record = request("/v1/completions", prompt=["Litwo! Ojczyzno moja!"], max_tokens=5)

    assert record.faults == ()
    assert (record.text, record.messages) == ("Litwo! Ojczyzno moja!", None)


def test_text_parts_are_one_text() -> None:
    """Content may be a list of text parts."""
    parts = [{"type": "text", "text": "Ala "}, {"type": "text", "text": "ma kota"}]

    record = request(messages=[{"role": "user", "content": parts}])

    assert (Message(role="user", content="Ala ma kota"),) == record.messages


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "function"}]},
        {"tool_choice": "required"},
        {"response_format": {"type": "json_object"}},
        {"n": 2},
        {"n": True},
        {"stream": True},
        {"logprobs": True},
        {"logit_bias": {"5": 1}},
        {"presence_penalty": 0.5},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}, *USER]},
    ],
)
def test_what_is_not_built_is_refused_by_name(body: dict[str, Any]) -> None:
    """F19: a field that would change the answer is never dropped in silence."""
    record = request(**body)

    assert "unsupported_field" in codes(record)
    assert any(name in fault.message for fault in record.faults for name in (*body, "messages[0]"))


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "stream": False},
        {"tools": None, "n": None, "logprobs": False, "presence_penalty": 0.0, "frequency_penalty": 0},
        {"temperature": None, "stop": None, "max_tokens": None},
    ],
)
def test_fields_that_ask_for_nothing_are_fine(body: dict[str, Any]) -> None:
    """What client libraries always send does not hurt."""
    assert request(**body).faults == ()


def test_ignored_fields_are_said() -> None:
    """`user` and `metadata` have no effect, and the user is told."""
    assert {"body.user", "body.metadata"} == request(user="u", metadata={"a": "b"}).ignored


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"custom_id": None}, "missing_custom_id"),
        ({"custom_id": 5}, "bad_value"),
        ({"method": "GET"}, "bad_envelope"),
        ({"method": None}, "bad_envelope"),
        ({"url": "/v1/embeddings"}, "url_mismatch"),
        ({"url": "/v1/completions"}, "url_mismatch"),
        ({"body": []}, "bad_envelope"),
        ({"body": None}, "bad_envelope"),
        ({"body": {}}, "bad_envelope"),
        ({"body": {"messages": "hej"}}, "bad_value"),
        ({"body": {"messages": ["hej"]}}, "bad_value"),
        ({"body": {"messages": [{"role": "kot", "content": "a"}]}}, "bad_value"),
        ({"body": {"messages": [{"role": "user", "content": None}]}}, "bad_value"),
        ({"body": {"messages": [{"role": "user", "content": ""}]}}, "empty_prompt"),
        ({"body": {"messages": USER, "max_tokens": 5, "max_completion_tokens": 6}}, "bad_value"),
        ({"body": {"messages": USER, "temperatura": 1}}, "unknown_option"),
        ({"body": {"messages": USER, "model": 1}}, "bad_value"),
        ({"priority": 1}, "unknown_option"),
    ],
)
def test_each_kind_of_bad_request_has_its_code(change: dict[str, Any], code: str) -> None:
    """The envelope is checked key by key, and nothing raises."""
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": USER}} | change

    assert code in codes(parse_request(line))


def test_one_job_has_one_model(tmp_path: Path) -> None:
    """A second model in the file is a problem at its line; the first is reported."""
    line = {"method": "POST", "url": "/v1/chat/completions"}
    lines = [
        line | {"custom_id": str(at), "body": {"messages": USER, "model": model}}
        for at, model in enumerate(["a", "a", "b"])
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    inputs = read_inputs([str(path)], Instruction(), None, io.BytesIO())

    assert inputs.model == "a"
    assert [(problem.line, problem.code) for problem in inputs.problems] == [(3, "model_mismatch")]
