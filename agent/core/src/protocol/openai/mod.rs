//! What OpenAI's chat completions and completions have in common: requests, and responses that are one document.
//!
//! Owns: the union of what OpenAI, vLLM, SGLang and llama.cpp send for both. Refuses: claiming requests (the two
//! protocol files do), and streamed messages (`stream`). Shapes were read from vLLM 0.32 and llama.cpp's server, and from
//! OpenAI's reference.

mod members;
mod said;
mod stream;
mod tree;

pub(super) use said::{answer, prompt, said};
pub(super) use stream::{message, message_is};

use super::{RequestFacts, ResponseFacts, clean_name, lenient::whole};
use crate::wire::json_scan::Scalar;

pub(super) const REQUEST_PATHS: &[&str] = &[
    "model",
    "stream",
    "stream_options.include_usage",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "user",
    "echo",
];

pub(super) fn request_field(path: usize, value: &Scalar<'_>, facts: &mut RequestFacts) {
    match (REQUEST_PATHS[path], value) {
        ("model", Scalar::String { text, .. }) => facts.model = clean_name(text).or(facts.model.take()),
        ("user", Scalar::String { text, .. }) => facts.user = clean_name(text),
        ("stream", Scalar::Bool(on)) => facts.stream = Some(*on),
        ("stream_options.include_usage", Scalar::Bool(on)) => facts.include_usage = Some(*on),
        ("echo", Scalar::Bool(on)) => facts.echo = Some(*on),
        ("n", Scalar::Number(n)) => facts.choices = whole(*n),
        ("max_tokens", Scalar::Number(n)) => facts.max_tokens = facts.max_tokens.or(whole(*n)),
        // The newer name wins where a client sends both.
        ("max_completion_tokens", Scalar::Number(n)) => facts.max_tokens = whole(*n).or(facts.max_tokens),
        _ => {}
    }
}

pub(super) const RESPONSE_PATHS: &[&str] = &[
    "id",
    "object",
    "model",
    "choices.*.index",
    "choices.*.finish_reason",
    "usage.prompt_tokens",
    "usage.completion_tokens",
    "usage.prompt_tokens_details.cached_tokens",
    "usage.completion_tokens_details.reasoning_tokens",
    "timings.cache_n",
    "timings.prompt_n",
    "timings.predicted_n",
    "error",
    "error.code",
    "error.type",
    "error.message",
    "code",
];

pub(super) fn response_field(path: usize, value: &Scalar<'_>, facts: &mut ResponseFacts) {
    match (RESPONSE_PATHS[path], value) {
        ("id", Scalar::String { text, .. }) => facts.id = clean_name(text),
        ("object", Scalar::String { text, .. }) => {
            facts.object = clean_name(text);
            if *text == "error" {
                facts.error.get_or_insert_default();
            }
        }
        ("model", Scalar::String { text, .. }) => facts.model = clean_name(text),
        ("choices.*.finish_reason", Scalar::String { text, .. }) if facts.finish_reason.is_none() => {
            facts.finish_reason = clean_name(text);
        }
        ("choices.*.index", Scalar::Number(n)) => facts.several_choices |= whole(*n).is_some_and(|n| n > 0),
        ("error" | "error.message", Scalar::String { .. }) => {
            facts.error.get_or_insert_default();
        }
        ("error.type", Scalar::String { text, .. }) => {
            facts.error.get_or_insert_default().blames_request = blames_request(text);
        }
        ("error.code", Scalar::String { text, .. }) => {
            facts.error.get_or_insert_default().code = text.parse().ok().and_then(http_code);
        }
        ("error.code", Scalar::Number(n)) => {
            facts.error.get_or_insert_default().code = whole(*n).and_then(http_code);
        }
        // Older vLLM: {"object":"error","message":…,"code":400}.
        ("code", Scalar::Number(n)) => {
            if let Some(error) = &mut facts.error {
                error.code = error.code.or(whole(*n).and_then(http_code));
            }
        }
        (path, Scalar::Number(n)) => {
            let n = whole(*n);
            let (usage, timings) = (&mut facts.usage, &mut facts.fallback_usage);
            match path {
                "usage.prompt_tokens" => usage.input = n,
                "usage.completion_tokens" => usage.output = n,
                "usage.prompt_tokens_details.cached_tokens" => usage.cached_input = n,
                "usage.completion_tokens_details.reasoning_tokens" => usage.reasoning = n,
                "timings.predicted_n" => timings.output = n,
                // llama.cpp's prompt_n leaves out what the cache had.
                "timings.prompt_n" => {
                    timings.input = Some(n.unwrap_or(0) + timings.cached_input.unwrap_or(0));
                }
                "timings.cache_n" => {
                    timings.cached_input = n;
                    timings.input = timings.input.map(|prompt| prompt + n.unwrap_or(0));
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn http_code(code: u64) -> Option<u16> {
    (100..600).contains(&code).then_some(code as u16)
}

fn blames_request(kind: &str) -> bool {
    matches!(
        kind,
        "invalid_request_error" | "BadRequestError" | "exceed_context_size_error" | "NotFoundError"
    )
}
