//! The bodies of an exchange: undoing their coding, and finding out whether a response is a stream or a document.
//!
//! Owns: the choice of parser and the parsers' state. Refuses: what the parsed messages mean (`protocol`, `exchange`).

use crate::{
    protocol::{PROTOCOLS, Protocol, RequestFacts, ResponseFacts},
    scene::SceneFacts,
    wire::{
        encoding::{Coding, ContentDecoder, EncodingError},
        http1::ResponseHead,
        json_scan::JsonScan,
        sse::{SseDecoder, SseItem},
    },
};

/// A body could not be decoded, told once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// A request body: one JSON document of which a few scalars matter.
#[derive(Debug)]
pub(super) struct RequestBody {
    decoder: Option<ContentDecoder>,
    scan: JsonScan,
}

impl RequestBody {
    pub(super) fn new(protocol: &dyn Protocol, coding: Coding) -> RequestBody {
        RequestBody {
            decoder: (coding != Coding::Identity).then(|| ContentDecoder::new(coding)),
            scan: JsonScan::new(protocol.request_paths()),
        }
    }

    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        protocol: &dyn Protocol,
        facts: &mut RequestFacts,
        scene: &mut SceneFacts,
        keep: &mut dyn FnMut(&[u8]),
    ) -> Result<(), Unreadable> {
        let scan = &mut self.scan;
        let mut plain = |bytes: &[u8]| {
            scene.feed(bytes);
            keep(bytes);
            scan.feed(bytes, &mut |path, value| {
                protocol.request_field(path, &value, facts);
            });
        };
        match &mut self.decoder {
            None => plain(bytes),
            Some(decoder) => match decoder.feed(bytes, &mut plain) {
                Err(EncodingError::Gap) | Ok(()) => {}
                Err(_) => return Err(Unreadable),
            },
        }
        Ok(())
    }

    pub(super) fn gap(&mut self) {
        match &mut self.decoder {
            None => self.scan.gap(),
            Some(decoder) => decoder.gap(),
        }
    }

    pub(super) fn malformed(&self) -> bool {
        self.scan.failed()
    }
}

/// A response that is one JSON document, as one protocol reads it.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) protocol: &'static dyn Protocol,
    pub(super) scan: JsonScan,
    pub(super) facts: ResponseFacts,
}

/// What a response body is.
#[derive(Debug)]
pub(super) enum Body {
    /// Nothing to read, or nothing that can be read.
    Opaque,
    /// The head does not say; the first byte will.
    Undecided,
    Stream(Box<SseDecoder>),
    /// One reading for each protocol that it may be: one, when the request was seen.
    Document(Vec<Document>),
}

/// A piece of a response body, its coding undone.
pub(super) enum Piece<'a> {
    Item(SseItem<'a>),
    Document(&'a [u8]),
}

/// A response body and its coding.
#[derive(Debug)]
pub(super) struct ResponseBody {
    decoder: Option<Box<ContentDecoder>>,
    body: Body,
    unreadable: bool,
    stream: bool,
}

impl ResponseBody {
    /// Before the head.
    pub(super) fn none() -> ResponseBody {
        ResponseBody {
            decoder: None,
            body: Body::Opaque,
            unreadable: false,
            stream: false,
        }
    }

    pub(super) fn new(head: &ResponseHead, protocol: Option<&'static dyn Protocol>) -> ResponseBody {
        let content_type = head
            .headers
            .iter()
            .find(|(name, _)| name == "content-type")
            .map_or("", |(_, value)| value.split(';').next().unwrap_or("").trim());
        let coding = Coding::of(&head.headers);
        let stream = content_type.eq_ignore_ascii_case("text/event-stream");
        let unreadable = coding == Coding::Unsupported;
        let body = if unreadable {
            Body::Opaque
        } else if stream {
            Body::Stream(Box::default())
        } else if content_type.eq_ignore_ascii_case("application/json") {
            document(protocol)
        } else {
            Body::Undecided
        };
        let decoder =
            (coding != Coding::Identity && !unreadable).then(|| Box::new(ContentDecoder::new(coding)));
        ResponseBody {
            decoder,
            body,
            unreadable,
            stream,
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        self.stream
    }

    pub(super) fn is_unreadable(&self) -> bool {
        self.unreadable
    }

    pub(super) fn into_body(self) -> Body {
        self.body
    }

    pub(super) fn heap_bytes(&self) -> usize {
        // zlib's window and tables; the buffers of a parser that is in the middle of something.
        let decoder = if self.decoder.is_some() { 80 * 1024 } else { 0 };
        decoder
            + match &self.body {
                Body::Opaque | Body::Undecided => 0,
                Body::Stream(decoder) => size_of::<SseDecoder>() + decoder.heap_bytes(),
                Body::Document(documents) => documents.len() * (size_of::<Document>() + 1024),
            }
    }

    /// The next bytes; `sink` gets the items of a stream, or the bytes of a document.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        protocol: Option<&'static dyn Protocol>,
        sink: &mut dyn FnMut(Piece<'_>),
    ) -> Result<(), Unreadable> {
        let ResponseBody {
            decoder,
            body,
            stream,
            ..
        } = self;
        let mut plain = |bytes: &[u8]| {
            if let Body::Undecided = body {
                match bytes.trim_ascii_start().first() {
                    None => return,
                    Some(b'{' | b'[') => *body = document(protocol),
                    // A field name, or the colon of a comment.
                    Some(b':' | b'a'..=b'z') => {
                        *body = Body::Stream(Box::default());
                        *stream = true;
                    }
                    Some(_) => *body = Body::Opaque,
                }
            }
            match body {
                Body::Stream(decoder) => decoder.feed(bytes, &mut |item| sink(Piece::Item(item))),
                Body::Document(documents) => {
                    sink(Piece::Document(bytes));
                    for document in documents {
                        let Document {
                            protocol,
                            scan,
                            facts,
                        } = document;
                        scan.feed(bytes, &mut |path, value| {
                            protocol.response_field(path, &value, facts);
                        });
                    }
                }
                Body::Opaque | Body::Undecided => {}
            }
        };
        match decoder {
            None => plain(bytes),
            Some(decoder) => match decoder.feed(bytes, &mut plain) {
                Ok(()) => {}
                Err(error) => {
                    self.decoder = None;
                    self.body = Body::Opaque;
                    self.unreadable = true;
                    if error != EncodingError::Gap {
                        return Err(Unreadable);
                    }
                }
            },
        }
        Ok(())
    }

    pub(super) fn gap(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.gap();
            return;
        }
        match &mut self.body {
            Body::Stream(decoder) => decoder.gap(&mut |_| {}),
            Body::Document(documents) => documents.iter_mut().for_each(|document| document.scan.gap()),
            Body::Opaque | Body::Undecided => {}
        }
    }

    /// The framing is lost: only an event stream can be followed without it.
    pub(super) fn continue_raw(&mut self) {
        if self.decoder.is_some() || self.unreadable {
            self.body = Body::Opaque;
            return;
        }
        if !matches!(self.body, Body::Stream(_)) {
            self.body = Body::Stream(Box::default());
            self.stream = true;
        }
        self.gap();
    }
}

fn document(protocol: Option<&'static dyn Protocol>) -> Body {
    let read = |protocol: &'static dyn Protocol| Document {
        protocol,
        scan: JsonScan::new(protocol.response_paths()),
        facts: ResponseFacts::default(),
    };
    Body::Document(match protocol {
        Some(protocol) => vec![read(protocol)],
        None => PROTOCOLS.iter().copied().map(read).collect(),
    })
}
