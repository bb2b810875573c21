//! HTTP/1.x framing, both directions, over `httparse`.
//!
//! Owns: heads, body framing (length, chunked, until close), informational responses, upgrade, resynchronising after a
//! gap. Refuses: pairing of requests with responses (`exchange`) and the meaning of bodies (`protocol`).

use crate::Anomaly;

/// Limits and facts of a request head.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestHead {
    /// `POST`, …
    pub method: String,
    /// Request target as sent, query included.
    pub target: String,
    /// Names in lower case, values trimmed; in order. Credentials are dropped here and never leave the decoder.
    pub headers: Vec<(String, String)>,
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

/// Push decoder of one direction of one connection.
#[derive(Debug)]
pub struct Decoder {
    _private: (),
}

impl Decoder {
    /// A decoder of requests.
    pub fn request() -> Decoder {
        Decoder { _private: () }
    }

    /// A decoder of responses. Tell it each request's method with [`Decoder::expect`].
    pub fn response() -> Decoder {
        Decoder { _private: () }
    }

    /// Response side: a request with this method was sent; its response has no body if it is `HEAD`, and turns the
    /// stream opaque if it is `CONNECT` and succeeds. Order is pipelining order.
    pub fn expect(&mut self, _method: &str) {}

    /// The next bytes of the stream.
    pub fn feed(&mut self, _bytes: &[u8], _sink: &mut dyn FnMut(HttpEvent<'_>)) {}

    /// The next `len` bytes of the stream were not seen.
    pub fn gap(&mut self, _len: u64, _sink: &mut dyn FnMut(HttpEvent<'_>)) {}

    /// The stream ended: completes a body that runs until close, truncates any other.
    pub fn end(&mut self, _sink: &mut dyn FnMut(HttpEvent<'_>)) {}

    /// Whether a message is under way.
    pub fn in_message(&self) -> bool {
        false
    }
}
