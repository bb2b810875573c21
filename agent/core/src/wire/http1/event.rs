//! What the HTTP/1 decoder tells.
//!
//! Owns: heads as others see them, and the events. Refuses: decoding.

use crate::Anomaly;

/// Facts of a request head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHead {
    /// `POST`, …
    pub method: String,
    /// Request target as sent, query included; the values of query parameters that carry credentials (`key`,
    /// `api_key`, `access_token`, …) are replaced by `REDACTED`.
    pub target: String,
    /// Names in lower case, values trimmed; in order. Credentials are dropped here and never leave the decoder.
    pub headers: Vec<(String, String)>,
    /// SHA-256 of the API key that it was sent with, which itself is dropped: see [`fingerprint`](crate::scene::fingerprint).
    pub api_key: Option<[u8; 32]>,
}

/// Facts of a response head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseHead {
    /// Status code, 100–999.
    pub status: u16,
    /// As for [`RequestHead::headers`].
    pub headers: Vec<(String, String)>,
}

/// Either head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Of a request.
    Request(RequestHead),
    /// Of a response.
    Response(ResponseHead),
}

/// What the decoder found, in stream order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpEvent<'a> {
    /// A message began. `bytes` is the size of its head on the wire. 1xx heads other than 101 are reported too, without an `End`.
    Head {
        /// The head.
        head: Head,
        /// Its size on the wire.
        bytes: u64,
    },
    /// Body bytes, framing removed.
    Body(&'a [u8]),
    /// Body bytes that were not seen: how many (of the stream, framing included).
    BodyGap(u64),
    /// Framing bytes that belong to the current message (chunk sizes, trailers), for byte accounting.
    Framing(u64),
    /// The message is complete. `truncated` when the stream ended or lost its place first.
    End {
        /// The stream ended, or its place was lost, before the message was complete.
        truncated: bool,
    },
    /// The bytes are no longer HTTP (101, CONNECT): nothing more is decoded.
    Upgraded,
    /// Something did not fit.
    Anomaly(Anomaly),
}
