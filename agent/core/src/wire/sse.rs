//! `text/event-stream` framing.
//!
//! Owns: lines, fields, events, their size limit. Refuses: what `data` means (`protocol`).

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// `event:` field, empty when absent.
    pub name: &'a [u8],
    /// `data:` fields joined with newlines.
    pub data: &'a [u8],
}

/// What the decoder found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// An event with data.
    Event(SseEvent<'a>),
    /// A comment line (keep-alive).
    Comment,
    /// A line or event over the size limit was skipped, or a gap cut one.
    Skipped,
}

/// Push decoder of one event stream.
#[derive(Debug, Default)]
pub struct SseDecoder {
    _private: (),
}

impl SseDecoder {
    /// The next bytes of the body.
    pub fn feed(&mut self, _bytes: &[u8], _sink: &mut dyn FnMut(SseItem<'_>)) {}

    /// Bytes of the body are missing: skips to the next event boundary.
    pub fn gap(&mut self, _sink: &mut dyn FnMut(SseItem<'_>)) {}

    /// The body ended; an event without its closing blank line is discarded, as the standard says.
    pub fn end(&mut self, _sink: &mut dyn FnMut(SseItem<'_>)) {}
}
