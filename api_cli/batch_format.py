"""OpenAI's Batch format: request lines in, result lines out.

A request line is

    {"custom_id": "doc-1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...], ...}}

with `body.messages` for `/v1/chat/completions` and `body.prompt` (continued raw) for `/v1/completions`. Of the body
nocka honours max_tokens, max_completion_tokens, temperature, top_p, top_k, min_p, repetition_penalty, seed and stop.
What would change the answer and is not built (tools, response_format, n > 1, stream, logprobs, ...) is refused by name
unless it holds the value that has no effect. `model` is read but does not choose: the job's target answers.

A result line is OpenAI's, with one more key that names the cell and carries the figures:

    {"id": "batch_req_7", "custom_id": "doc-1", "error": null, "nocka": {...},
     "response": {"status_code": 200, "request_id": "7", "body": {<chat.completion or text_completion>}}}

and for a result that failed or was cancelled `"response": null, "error": {"code": "...", "message": "..."}`.
"""

from __future__ import annotations

from typing import Any

from api_cli.record import Fault, Record, custom_id_of, messages_of, overrides_of, shown, text_faults
from db.records import ResultRecord
from db.specs import CellSpec, DrafterKind, Message
from db.status import ResultState

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
#: A line that has one of these means to be a request line.
ENVELOPE_KEYS = frozenset({"method", "url", "body", "params"})

_OPTIONS = frozenset({"temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop"})
_NO_EFFECT = frozenset(
    {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"}
)
#: Refused, unless null or one of these values, which ask for nothing.
_REFUSED: dict[str, tuple[Any, ...]] = {
    "stream": (False,),
    "stream_options": (),
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def parse_request(line: dict[str, Any]) -> Record:
    """The record in a request line, with everything that is wrong with it."""
    custom_id, faults = custom_id_of(line.get("custom_id"))
    if custom_id is None and not faults:
        faults.append(Fault("missing_custom_id", "a batch request needs a custom_id"))
    faults += _envelope_faults(line)
    body, url = line.get("body"), line.get("url")
    if not isinstance(body, dict):
        return Record(custom_id=custom_id, faults=tuple(faults))
    faults += _body_faults(body)
    messages, text = None, None
    if url == CHAT:
        messages, wrong = _chat(body)
        faults += wrong
    elif url == COMPLETIONS:
        text, wrong = _prompt(body)
        faults += wrong
    overrides, wrong = overrides_of(_options(body, faults))
    faults += wrong
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        faults.append(Fault("bad_value", f"body.model should be a string, not {shown(model)}"))
    return Record(
        custom_id=custom_id,
        messages=messages,
        text=text,
        overrides=overrides,
        model=model if isinstance(model, str) else None,
        ignored=frozenset(f"body.{name}" for name in _NO_EFFECT & body.keys()),
        faults=tuple(faults),
    )


def _envelope_faults(line: dict[str, Any]) -> list[Fault]:
    faults = []
    missing = [name for name in ("method", "url", "body") if line.get(name) is None]
    if missing:
        faults.append(Fault("bad_envelope", f"a batch request needs {', '.join(missing)}"))
    unknown = sorted(line.keys() - {"custom_id", "method", "url", "body"})
    if unknown:
        faults.append(Fault("unknown_option", f"no such key in a batch request: {', '.join(unknown)}"))
    if line.get("method") not in (None, "POST"):
        faults.append(Fault("bad_envelope", f'method should be "POST", not {shown(line["method"])}'))
    if line.get("url") not in (None, CHAT, COMPLETIONS):
        faults.append(Fault("url_mismatch", f"url should be {CHAT} or {COMPLETIONS}, not {shown(line['url'])}"))
    if line.get("body") is not None and not isinstance(line["body"], dict):
        faults.append(Fault("bad_envelope", f"body should be an object, not {shown(line['body'])}"))
    return faults


def _body_faults(body: dict[str, Any]) -> list[Fault]:
    known = _OPTIONS | _NO_EFFECT | {"model", "messages", "prompt", "max_tokens", "max_completion_tokens"}
    faults = []
    for name, value in body.items():
        if name in _REFUSED:
            if value is not None and not _asks_for_nothing(name, value):
                faults.append(Fault("unsupported_field", f"body.{name} = {shown(value)} is not supported"))
        elif name not in known:
            faults.append(Fault("unknown_option", f"body.{name}: no such option"))
    return faults


def _asks_for_nothing(name: str, value: Any) -> bool:
    # bool is an int to Python: `n: true` is not 1, `logprobs: false` is not 0.
    return any(value == fine and isinstance(value, bool) == isinstance(fine, bool) for fine in _REFUSED[name])


def _chat(body: dict[str, Any]) -> tuple[tuple[Message, ...], list[Fault]]:
    faults = [Fault("url_mismatch", f"body.prompt belongs to {COMPLETIONS}")] if "prompt" in body else []
    if body.get("messages") is None:
        return (), [*faults, Fault("bad_envelope", "the body needs messages")]
    messages, wrong = messages_of(body["messages"], "body.messages")
    return messages, faults + wrong


def _prompt(body: dict[str, Any]) -> tuple[str, list[Fault]]:
    faults = [Fault("url_mismatch", f"body.messages belongs to {CHAT}")] if "messages" in body else []
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if prompt is None:
        return "", [*faults, Fault("bad_envelope", "the body needs a prompt")]
    if isinstance(prompt, list):
        return "", [*faults, Fault("unsupported_field", "body.prompt: one text a line, no lists and no token ids")]
    if not isinstance(prompt, str):
        return "", [*faults, Fault("bad_value", f"body.prompt should be a string, not {shown(prompt)}")]
    return prompt, faults + text_faults("body.prompt", prompt)


def _options(body: dict[str, Any], faults: list[Fault]) -> dict[str, Any]:
    """The decoding options of *body*; a contradiction between its two length limits goes to *faults*."""
    limits = {body[name] for name in ("max_tokens", "max_completion_tokens") if isinstance(body.get(name), int)}
    if len(limits) > 1:
        faults.append(Fault("bad_value", "body.max_tokens and body.max_completion_tokens differ"))
    options = {name: body[name] for name in _OPTIONS & body.keys()}
    newer = body.get("max_completion_tokens")
    return options | {"max_tokens": newer if newer is not None else body.get("max_tokens")}


def result_line(result: ResultRecord, cell: CellSpec) -> dict[str, Any]:
    """The line of one ended result, JSON-ready."""
    done = result.state is ResultState.DONE
    return {
        "id": f"batch_req_{result.id}",
        "custom_id": result.custom_id,
        "response": _response(result, cell) if done else None,
        "error": None if done else _error(result),
        "nocka": {
            "job": result.job_id,
            "cell": result.cell_label,
            "state": result.state.value,
            "attempts": result.attempts,
            "reused_from": result.reused_from,
            "drafter": cell.drafter.value,
            "draft": cell.draft if cell.drafter is not DrafterKind.OFF else None,
            "reference": result.item.reference if result.item else None,
            "metrics": result.metrics,
            "config": result.config,
        },
    }


def _error(result: ResultRecord) -> dict[str, str]:
    code = result.error_code or result.state.value
    return {"code": code, "message": result.error_message or f"The result is {result.state.value}."}


def _response(result: ResultRecord, cell: CellSpec) -> dict[str, Any]:
    raw = result.item is not None and result.item.text is not None
    choice: dict[str, Any] = {"index": 0, "finish_reason": result.finish_reason, "logprobs": None}
    choice |= {"text": result.text} if raw else {"message": {"role": "assistant", "content": result.text}}
    prompt_tokens, completion_tokens = result.prompt_tokens or 0, result.completion_tokens or 0
    body = {
        "id": f"{'cmpl' if raw else 'chatcmpl'}-{result.job_id}-{result.id}",
        "object": "text_completion" if raw else "chat.completion",
        "created": int(result.finished_at.timestamp()) if result.finished_at else 0,
        "model": cell.target,
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }
    return {"status_code": 200, "request_id": str(result.id), "body": body}
