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
    "b3",
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
    "x-b3-spanid",
    "x-b3-traceid",
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
    /// Hexadecimal digits and dashes (`traceparent` and B3, which tie records to traces and are random).
    Hex,
    /// Words of this list, between separators.
    Words(Words),
}

/// What passes of the value of the header with this index in [`HEADERS`].
pub(super) fn header_value(index: usize) -> HeaderValue {
    match HEADERS.get(index).copied() {
        Some("content-length" | "retry-after") => HeaderValue::Digits,
        Some("traceparent" | "b3" | "x-b3-traceid" | "x-b3-spanid") => HeaderValue::Hex,
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

/// Names of stream events.
pub(super) const EVENTS: Words = &[
    "content_block_delta",
    "content_block_start",
    "content_block_stop",
    "done",
    "error",
    "message",
    "message_delta",
    "message_start",
    "message_stop",
    "ping",
    "response.completed",
    "response.content_part.added",
    "response.content_part.done",
    "response.created",
    "response.failed",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.in_progress",
    "response.incomplete",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.output_text.done",
    "response.queued",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.refusal.delta",
    "response.refusal.done",
];

/// JSON's words.
pub(super) const LITERALS: Words = &["false", "null", "true"];

#[cfg(test)]
mod tests {
    use super::super::members::{MEMBER_NAMES, REASONS};
    use super::*;

    const LISTS: &[Words] = &[
        METHODS,
        VERSIONS,
        SEGMENTS,
        HEADERS,
        MEDIA_TYPES,
        TOKENS,
        SSE_FIELDS,
        EVENTS,
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
