//! Blanks one body, by what it is.
//!
//! Owns: the choice: JSON, newline-delimited JSON, event stream, or opaque. Refuses: decoding of content encodings: a
//! compressed body is opaque, and an opaque one is zeros.

use super::json::JsonBlank;
use super::sse::SseBlank;
use infertap_core::wire::http1::Head;

/// Machine for one body.
#[derive(Debug, Clone)]
pub(super) enum BodyBlank {
    /// Its first byte will tell what it is.
    Undecided {
        /// One JSON text a line.
        lines: bool,
        /// It says that it is something else than JSON or a stream.
        other: bool,
    },
    /// JSON.
    Json {
        /// The machine.
        json: JsonBlank,
        /// One text a line, so that a line end is a certain place after a gap.
        lines: bool,
    },
    /// An event stream.
    Sse(SseBlank),
    /// Anything else.
    Opaque,
}

impl BodyBlank {
    /// The machine for the body behind this head.
    pub(super) fn new(head: &Head) -> BodyBlank {
        let headers = match head {
            Head::Request(head) => &head.headers,
            Head::Response(head) => &head.headers,
        };
        let mut lines = false;
        let mut stream = false;
        let mut other = false;
        for (name, value) in headers {
            match name.as_str() {
                "content-encoding" | "transfer-encoding" => {
                    let plain = |coding: &str| {
                        let coding = coding.trim();
                        coding.is_empty()
                            || coding.eq_ignore_ascii_case("identity")
                            || (name == "transfer-encoding" && coding.eq_ignore_ascii_case("chunked"))
                    };
                    if !value.split(',').all(plain) {
                        return BodyBlank::Opaque;
                    }
                }
                "content-type" => {
                    let media = value.split(';').next().unwrap_or_default().trim();
                    stream |= media.eq_ignore_ascii_case("text/event-stream");
                    other |= !stream && !media.to_ascii_lowercase().contains("json");
                    lines |= ["application/x-ndjson", "application/ndjson", "application/jsonl"]
                        .iter()
                        .any(|listed| media.eq_ignore_ascii_case(listed));
                }
                _ => {}
            }
        }
        if stream {
            BodyBlank::Sse(SseBlank::new())
        } else {
            BodyBlank::Undecided { lines, other }
        }
    }

    /// Blanks the next bytes.
    pub(super) fn feed(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = self.byte(*byte);
        }
    }

    /// Bytes are missing.
    pub(super) fn gap(&mut self) {
        match self {
            BodyBlank::Sse(sse) => sse.gap(),
            BodyBlank::Json { json, .. } => json.fail(),
            BodyBlank::Undecided { .. } => *self = BodyBlank::Opaque,
            BodyBlank::Opaque => {}
        }
    }

    fn byte(&mut self, byte: u8) -> u8 {
        if let BodyBlank::Undecided { lines, other } = self {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => return byte,
                b'{' | b'[' => {
                    *self = BodyBlank::Json {
                        json: JsonBlank::new(),
                        lines: *lines,
                    };
                }
                // The core takes this for a stream whatever its type says.
                b':' | b'a'..=b'z' => {
                    *self = BodyBlank::Sse(if *other {
                        SseBlank::without_facts()
                    } else {
                        SseBlank::new()
                    });
                }
                _ => *self = BodyBlank::Opaque,
            }
        }
        match self {
            BodyBlank::Json { json, lines: true } if byte == b'\n' => {
                // No text of newline-delimited JSON holds a line feed, so the next one begins here whatever came before.
                *json = JsonBlank::new();
                byte
            }
            BodyBlank::Json { json, .. } => json.byte(byte),
            BodyBlank::Sse(sse) => sse.byte(byte),
            BodyBlank::Undecided { .. } | BodyBlank::Opaque => 0,
        }
    }
}
