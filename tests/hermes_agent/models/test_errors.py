"""What providers say when they refuse, in their own words, and what a person is told."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from hermes_agent.models import errors
from hermes_agent.models.base import Endpoint
from hermes_agent.models.errors import retry_after

HERE = Endpoint(
    "openai", "chat", "https://api.openai.com/v1", "gpt-5", api_key="geheim-1234567", key_from="OPENAI_API_KEY in .env"
)

# (status, body, kind): the shapes of OpenAI, OpenRouter, Anthropic, Google, Mistral, vLLM, Ollama and llama.cpp.
CASES: list[tuple[int, Any, str]] = [
    (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens.",
                "type": "invalid_request_error",
                "code": "context_length_exceeded",
            }
        },
        "context_overflow",
    ),
    (
        400,
        {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": "prompt is too long: 210000 tokens > 200000 maximum"},
        },
        "context_overflow",
    ),
    (
        400,
        {
            "type": "error",
            "error": {
                "type": "invalid_request_error",
                "message": "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            },
        },
        "context_overflow",
    ),
    (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size. try increasing the context size",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 14429,
                "n_ctx": 8192,
            }
        },
        "context_overflow",
    ),
    (500, {"error": {"code": 500, "type": "exceed_context_size_error", "message": "too big"}}, "context_overflow"),
    (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 4096 tokens.",
            "type": "BadRequestError",
            "code": 400,
        },
        "context_overflow",
    ),
    (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200000) exceeds the maximum allowed (1048575).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        "context_overflow",
    ),
    (
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '{"message": "prompt is too long"}', "provider_name": "X"},
            }
        },
        "context_overflow",
    ),
    (
        413,
        {"type": "error", "error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}},
        "payload_too_large",
    ),
    (413, b"", "payload_too_large"),
    (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}, "auth"),
    (401, {"error": {"message": "No auth credentials found", "code": 401}}, "auth"),
    (
        403,
        {"error": {"message": "Your chosen model requires moderation and your input was flagged", "code": 403}},
        "policy",
    ),
    (403, {"type": "error", "error": {"type": "permission_error", "message": "not allowed"}}, "auth"),
    (
        400,
        [{"error": {"code": 400, "message": "API key not valid. Invalid API key.", "status": "INVALID_ARGUMENT"}}],
        "auth",
    ),
    (402, {"error": {"message": "Insufficient credits", "code": 402}}, "billing"),
    (
        429,
        {
            "error": {
                "message": "You exceeded your current quota",
                "type": "insufficient_quota",
                "code": "insufficient_quota",
            }
        },
        "billing",
    ),
    (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
        "billing",
    ),
    (
        404,
        {
            "error": {
                "message": "The model `gpt-9` does not exist or you do not have access to it.",
                "code": "model_not_found",
            }
        },
        "model_not_found",
    ),
    (404, {"error": "model 'llama9' not found, try pulling it first"}, "model_not_found"),
    (400, {"error": {"message": "foo/bar is not a valid model ID", "code": 400}}, "model_not_found"),
    (404, {"error": {"message": "No endpoints found for foo/bar.", "code": 404}}, "model_not_found"),
    (404, b"404 page not found", "model_not_found"),
    (
        429,
        {
            "error": {
                "message": "Rate limit reached on tokens per min (TPM): Limit 30000. The context length of your "
                "request",
                "type": "tokens",
            }
        },
        "rate_limit",
    ),
    (429, {"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}, "rate_limit"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
    (503, {"error": {"message": "The server is busy"}}, "overloaded"),
    (500, {"error": {"message": "Internal server error"}}, "server"),
    (502, b"<html><h1>502 Bad Gateway</h1></html>", "server"),
    (504, b"", "timeout"),
    (
        400,
        {
            "error": {
                "message": "messages.3: `tool_use` ids were found without `tool_result`",
                "type": "invalid_request_error",
            }
        },
        "bad_request",
    ),
    (422, {"detail": [{"loc": ["body", "tools"], "msg": "extra fields not permitted"}]}, "bad_request"),
    (418, b"\xff\xfe\x00 not text", "bad_request"),
]


@pytest.mark.parametrize(("status", "body", "kind"), CASES)
def test_each_refusal_has_one_kind_and_one_line(status: int, body: Any, kind: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = errors.from_response(HERE, status, {}, raw)
    assert error.kind == kind
    assert error.status == status
    line = error.one_line()
    assert "\n" not in line
    assert line.isprintable()
    assert "openai" in line
    assert error.hint or kind == "bad_request"


@pytest.mark.parametrize(
    "said",
    [
        "Incorrect API key provided: geheim-1234567. You can find it",
        "Incorrect API key provided: sk-proj-abcdefghijkl",
        "Incorrect key: sk-pr****************wxyz",
        "Authorization: Bearer geheim-1234567 was refused",
        "GET https://x/?key=AIzaSyA1234567890abcdef failed",
    ],
)
def test_no_key_is_ever_quoted(said: str) -> None:
    error = errors.from_response(HERE, 401, {}, json.dumps({"error": {"message": said}}).encode())
    shown = error.one_line() + repr(error) + str(error.args)
    for secret in ("geheim", "sk-pr", "abcdefghijkl", "wxyz", "AIza"):
        assert secret not in shown
    assert "OPENAI_API_KEY in .env" in shown


def test_a_long_answer_is_quoted_in_short() -> None:
    error = errors.from_response(HERE, 400, {}, json.dumps({"error": {"message": "x" * 5000}}).encode())
    assert len(error.one_line()) < 500


@pytest.mark.parametrize("words", ["Unknown parameter: key_frames", "bearer token missing"])
def test_words_that_only_look_like_a_key_are_quoted(words: str) -> None:
    error = errors.from_response(HERE, 400, {}, json.dumps({"error": {"message": words}}).encode())
    assert words in error.what


NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:10 GMT"}, 10.0),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "whenever"}, None),
        ({}, None),
    ],
)
def test_how_long_a_provider_asks_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=NOW) == seconds


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 7.66s.", 7.66),
        ("Please try again in 20ms", 0.02),
        ("try again in 2m", 120.0),
        ("later", None),
    ],
)
def test_how_long_in_words(words: str, seconds: float | None) -> None:
    error = errors.from_response(HERE, 429, {}, json.dumps({"error": {"message": words}}).encode())
    assert error.retry_after == (pytest.approx(seconds) if seconds is not None else None)
