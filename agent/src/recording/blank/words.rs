//! The words that blanking lets through, and the matcher that recognises them byte by byte.
//!
//! Owns: the lists. Refuses: deciding where in a message a list applies (`head`, `json`, `sse`). What is on no list is
//! blanked, so an omission here costs a recording some use, never a user's privacy.

/// A list of words, sorted by bytes (asserted by a test).
pub(super) type Words = &'static [&'static str];

/// Matches one word of a list as its bytes arrive. Each byte is answered at once, because the record that holds it may
/// be written before the next arrives: so a prefix of a listed word passes, and nothing else does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matcher {
    words: Words,
    low: usize,
    high: usize,
    len: usize,
    fold: bool,
    whole: bool,
}

impl Matcher {
    /// A matcher at the beginning of a word. `fold`: upper-case ASCII is taken for lower case.
    pub(super) fn new(words: Words, fold: bool) -> Matcher {
        Matcher {
            words,
            low: 0,
            high: words.len(),
            len: 0,
            fold,
            whole: false,
        }
    }

    /// The next byte. `true` while the word so far begins a listed one.
    pub(super) fn step(&mut self, byte: u8) -> bool {
        let byte = if self.fold {
            byte.to_ascii_lowercase()
        } else {
            byte
        };
        self.whole = self.matched().is_some();
        let at = |word: &str| word.as_bytes().get(self.len).copied();
        while self.low < self.high && at(self.words[self.low]) != Some(byte) {
            self.low += 1;
        }
        while self.low < self.high && at(self.words[self.high - 1]) != Some(byte) {
            self.high -= 1;
        }
        self.len += 1;
        self.low < self.high
    }

    /// Whether the bytes before the last one, which did not match, were a whole word.
    pub(super) fn stopped_after(&self) -> bool {
        self.whole
    }

    /// Index of the word that was matched whole.
    pub(super) fn matched(&self) -> Option<usize> {
        (self.low < self.high && self.words[self.low].len() == self.len).then_some(self.low)
    }
}

/// HTTP methods.
pub(super) const METHODS: Words = &[
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PRI", "PUT", "TRACE",
];

/// HTTP versions, as they begin a status line and end a request line.
pub(super) const VERSIONS: Words = &["HTTP/1.0", "HTTP/1.1", "HTTP/2.0"];

/// Segments of the paths that inference servers serve.
pub(super) const SEGMENTS: Words = &[
    "*",
    "abort_request",
    "api",
    "apply-template",
    "audio",
    "batches",
    "chat",
    "chat_tokenize",
    "classify",
    "completion",
    "completions",
    "count_tokens",
    "detokenize",
    "embed",
    "embedding",
    "embeddings",
    "encode",
    "files",
    "flush_cache",
    "generate",
    "generate_stream",
    "get_model_info",
    "get_server_info",
    "health",
    "health_generate",
    "healthz",
    "http:",
    "https:",
    "infer",
    "infill",
    "info",
    "invocations",
    "is_sleeping",
    "live",
    "load",
    "lora-adapters",
    "messages",
    "metrics",
    "model_info",
    "models",
    "openai",
    "ping",
    "pooling",
    "props",
    "ps",
    "ready",
    "rerank",
    "reranking",
    "responses",
    "score",
    "server_info",
    "show",
    "slots",
    "stream",
    "tags",
    "tokenize",
    "transcriptions",
    "translations",
    "v1",
    "v1beta",
    "v2",
    "version",
];

/// Header names that pass. Their values pass only as [`header_value`] says.
pub(super) const HEADERS: Words = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "api-key",
    "authorization",
    "baggage",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "host",
    "keep-alive",
    "location",
    "openai-beta",
    "openai-organization",
    "openai-project",
    "openai-version",
    "origin",
    "proxy-authorization",
    "proxy-connection",
    "referer",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "x-accel-buffering",
    "x-api-key",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-real-ip",
    "x-request-id",
];

/// What of a header's value passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderValue {
    /// Nothing: every byte is blanked.
    Blank,
    /// Decimal digits.
    Digits,
    /// Hexadecimal digits and dashes (`traceparent`, which ties records to traces and is random).
    Hex,
    /// Words of this list, between separators.
    Words(Words),
}

/// What passes of the value of the header with this index in [`HEADERS`].
pub(super) fn header_value(index: usize) -> HeaderValue {
    match HEADERS.get(index).copied() {
        Some("content-length" | "retry-after") => HeaderValue::Digits,
        Some("traceparent") => HeaderValue::Hex,
        Some("content-type") => HeaderValue::Words(MEDIA_TYPES),
        Some(
            "connection" | "proxy-connection" | "te" | "transfer-encoding" | "content-encoding" | "upgrade"
            | "expect" | "trailer" | "x-accel-buffering" | "cache-control",
        ) => HeaderValue::Words(TOKENS),
        _ => HeaderValue::Blank,
    }
}

const MEDIA_TYPES: Words = &[
    "application/grpc",
    "application/json",
    "application/json-seq",
    "application/jsonl",
    "application/ndjson",
    "application/octet-stream",
    "application/problem+json",
    "application/x-ndjson",
    "application/x-www-form-urlencoded",
    "charset",
    "multipart/form-data",
    "text/event-stream",
    "text/html",
    "text/plain",
    "us-ascii",
    "utf-8",
];

const TOKENS: Words = &[
    "100-continue",
    "br",
    "chunked",
    "close",
    "compress",
    "deflate",
    "gzip",
    "h2c",
    "http2-settings",
    "identity",
    "keep-alive",
    "no",
    "no-cache",
    "no-store",
    "te",
    "trailers",
    "upgrade",
    "websocket",
    "x-gzip",
    "zstd",
];

/// Fields of an event stream.
pub(super) const SSE_FIELDS: Words = &["data", "event", "id", "retry"];

/// JSON's words.
pub(super) const LITERALS: Words = &["false", "null", "true"];

/// What passes of a JSON member's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    /// Its name alone: strings are blanked, and so are numbers, and names of members inside that are not listed.
    Opaque,
    /// An object or array whose members are judged by their own names; strings and numbers in an array are blanked.
    Container,
    /// A string of identifier characters, or a number.
    Fact,
    /// A [`Member::Container`] as a member of the root, opaque elsewhere.
    RootContainer,
    /// A string that passes as far as it is one of [`REASONS`]: servers put the user's own stop string there too.
    Reason,
}

/// Why generation ended, where a user's text may stand instead.
pub(super) const REASONS: Words = &[
    "abort",
    "end_turn",
    "eos",
    "eos_token",
    "error",
    "length",
    "limit",
    "load",
    "max_tokens",
    "none",
    "pause_turn",
    "refusal",
    "stop",
    "stop_sequence",
    "tool_calls",
    "tool_use",
    "unload",
    "word",
];

/// Names of [`MEMBERS`].
pub(super) const MEMBER_NAMES: Words = &{
    let mut names = [""; MEMBERS.len()];
    let mut i = 0;
    while i < names.len() {
        names[i] = MEMBERS[i].0;
        i += 1;
    }
    names
};

/// Names of JSON members that pass, and what passes of their values. Only under listed containers, up to the root, does
/// a fact pass: `{"metadata": {"id": …}}` is somebody's data.
pub(super) const MEMBERS: &[(&str, Member)] = &[
    ("accepted_prediction_tokens", Member::Fact),
    ("annotations", Member::Opaque),
    ("arguments", Member::Opaque),
    ("audio", Member::Opaque),
    ("audio_tokens", Member::Fact),
    ("best_of", Member::Fact),
    ("cache_creation_input_tokens", Member::Fact),
    ("cache_n", Member::Fact),
    ("cache_prompt", Member::Fact),
    ("cache_read_input_tokens", Member::Fact),
    ("cached_tokens", Member::Fact),
    ("choices", Member::Container),
    ("code", Member::Fact),
    ("completion_tokens", Member::Fact),
    ("completion_tokens_details", Member::Container),
    ("content", Member::Container),
    ("content_block", Member::Container),
    ("content_index", Member::Fact),
    ("created", Member::Fact),
    ("created_at", Member::Fact),
    ("data", Member::Container),
    ("delta", Member::Container),
    ("details", Member::Container),
    ("done", Member::Fact),
    ("done_reason", Member::Reason),
    ("draft_n", Member::Fact),
    ("draft_n_accepted", Member::Fact),
    ("echo", Member::Fact),
    ("embedding", Member::Opaque),
    ("encoding_format", Member::Fact),
    ("error", Member::Container),
    ("eval_count", Member::Fact),
    ("eval_duration", Member::Fact),
    ("finish_reason", Member::Fact),
    ("frequency_penalty", Member::Fact),
    ("function", Member::Container),
    ("function_call", Member::Opaque),
    ("generated_text", Member::Opaque),
    ("generated_tokens", Member::Fact),
    ("id", Member::Fact),
    ("ignore_eos", Member::Fact),
    ("image_url", Member::Opaque),
    ("images", Member::Opaque),
    ("include_usage", Member::Fact),
    ("incomplete_details", Member::Container),
    ("index", Member::Fact),
    ("input", Member::Opaque),
    ("input_tokens", Member::Fact),
    ("input_tokens_details", Member::Container),
    ("instructions", Member::Opaque),
    ("item", Member::Container),
    ("item_id", Member::Fact),
    ("load_duration", Member::Fact),
    ("logprobs", Member::Opaque),
    ("max_completion_tokens", Member::Fact),
    ("max_model_len", Member::Fact),
    ("max_new_tokens", Member::Fact),
    ("max_output_tokens", Member::Fact),
    ("max_tokens", Member::Fact),
    ("message", Member::Container),
    ("messages", Member::Container),
    ("meta_info", Member::Container),
    ("metadata", Member::Opaque),
    ("min_p", Member::Fact),
    ("min_tokens", Member::Fact),
    ("model", Member::Fact),
    ("n", Member::Fact),
    ("n_predict", Member::Fact),
    ("name", Member::Opaque),
    ("num_ctx", Member::Fact),
    ("num_predict", Member::Fact),
    ("object", Member::Fact),
    ("options", Member::Container),
    ("output", Member::Container),
    ("output_index", Member::Fact),
    ("output_text", Member::Opaque),
    ("output_tokens", Member::Fact),
    ("output_tokens_details", Member::Container),
    ("owned_by", Member::Opaque),
    ("param", Member::Opaque),
    ("parameters", Member::RootContainer),
    ("part", Member::Container),
    ("partial_json", Member::Opaque),
    ("predicted_ms", Member::Fact),
    ("predicted_n", Member::Fact),
    ("predicted_per_second", Member::Fact),
    ("predicted_per_token_ms", Member::Fact),
    ("presence_penalty", Member::Fact),
    ("prompt", Member::Opaque),
    ("prompt_eval_count", Member::Fact),
    ("prompt_eval_duration", Member::Fact),
    ("prompt_ms", Member::Fact),
    ("prompt_n", Member::Fact),
    ("prompt_per_second", Member::Fact),
    ("prompt_per_token_ms", Member::Fact),
    ("prompt_tokens", Member::Fact),
    ("prompt_tokens_details", Member::Container),
    ("reasoning", Member::Opaque),
    ("reasoning_content", Member::Opaque),
    ("reasoning_tokens", Member::Fact),
    ("refusal", Member::Opaque),
    ("rejected_prediction_tokens", Member::Fact),
    ("repeat_penalty", Member::Fact),
    ("repetition_penalty", Member::Fact),
    ("response", Member::Container),
    ("response_format", Member::Container),
    ("role", Member::Fact),
    ("seed", Member::Fact),
    ("sequence_number", Member::Fact),
    ("service_tier", Member::Fact),
    ("signature", Member::Opaque),
    ("special", Member::Fact),
    ("status", Member::Fact),
    ("stop", Member::Opaque),
    ("stop_reason", Member::Reason),
    ("stop_sequence", Member::Opaque),
    ("stream", Member::Fact),
    ("stream_options", Member::Container),
    ("suffix", Member::Opaque),
    ("system", Member::Opaque),
    ("system_fingerprint", Member::Fact),
    ("temperature", Member::Fact),
    ("text", Member::Opaque),
    ("thinking", Member::Opaque),
    ("timings", Member::Container),
    ("token", Member::Opaque),
    ("token_ids", Member::Opaque),
    ("tokens", Member::Opaque),
    ("tokens_cached", Member::Fact),
    ("tokens_evaluated", Member::Fact),
    ("tokens_predicted", Member::Fact),
    ("tool_call_id", Member::Fact),
    ("tool_calls", Member::Container),
    ("tool_choice", Member::Opaque),
    ("tool_use_id", Member::Fact),
    ("tools", Member::Container),
    ("top_k", Member::Fact),
    ("top_p", Member::Fact),
    ("total_duration", Member::Fact),
    ("total_tokens", Member::Fact),
    ("truncated", Member::Fact),
    ("type", Member::Fact),
    ("usage", Member::Container),
    ("user", Member::Opaque),
];

#[cfg(test)]
mod tests {
    use super::*;

    const LISTS: &[Words] = &[
        METHODS,
        VERSIONS,
        SEGMENTS,
        HEADERS,
        MEDIA_TYPES,
        TOKENS,
        SSE_FIELDS,
        LITERALS,
        REASONS,
        MEMBER_NAMES,
    ];

    #[test]
    fn lists_are_sorted_and_no_word_can_arise_from_blanking() {
        for list in LISTS {
            assert!(list.is_sorted_by(|a, b| a < b), "{list:?}");
            // A blanked name is a prefix of a word, then underscores.
            assert!(list.iter().all(|word| !word.ends_with('_')), "{list:?}");
        }
    }

    #[test]
    fn a_matcher_passes_prefixes_and_tells_whole_words() {
        let run = |list, text: &str| {
            let mut matcher = Matcher::new(list, false);
            let passed = text.bytes().take_while(|b| matcher.step(*b)).count();
            (passed, matcher.matched().map(|i| list[i]))
        };
        assert_eq!(run(TOKENS, "te"), (2, Some("te")));
        assert_eq!(run(TOKENS, "tea"), (2, None));
        assert_eq!(run(MEMBER_NAMES, "prompt"), (6, Some("prompt")));
        assert_eq!(
            run(MEMBER_NAMES, "prompt_tokens_details"),
            (21, Some("prompt_tokens_details"))
        );
        assert_eq!(run(MEMBER_NAMES, "prompt_secret"), (7, None));
        assert_eq!(run(MEMBER_NAMES, ""), (0, None));
        for list in LISTS {
            for word in *list {
                assert_eq!(run(list, word), (word.len(), Some(*word)));
            }
        }
    }

    #[test]
    fn folding_takes_upper_case_for_lower() {
        let mut matcher = Matcher::new(HEADERS, true);
        assert!("Content-LENGTH".bytes().all(|b| matcher.step(b)));
        let index = matcher.matched().expect("listed");
        assert_eq!(header_value(index), HeaderValue::Digits);
    }
}
