//! What the decoder does with the front of the bytes in each of its states, and how it changes between them.
//!
//! Owns: heads in pieces, the way from a head to its body's framing, the ends of messages. Refuses: the public face.

use super::chunked::{Chunked, Step};
use super::detect::{self, Verdict};
use super::head::{self, Framing, Line};
use super::search::{Found, Search};
use super::{Decoder, Head, HttpEvent, MAX_HEAD, Sink, State};
use crate::Anomaly;
use std::collections::VecDeque;

impl Decoder {
    /// Takes bytes while between messages or in a head; returns how many.
    pub(super) fn feed_head(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        if self.head.is_empty() {
            // RFC 9112 2.2: empty lines before a message are ignored.
            let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            if blank > 0 {
                self.skipped += blank as u64;
                return blank;
            }
            self.line = Line::default();
        }
        let window = &bytes[..bytes.len().min(MAX_HEAD - self.head.len())];
        let end = self.line.find_blank(window);
        let used = end.unwrap_or(window.len());
        let mut buffer = std::mem::take(&mut self.head);
        let seen = if buffer.is_empty() && end.is_some() {
            &window[..used]
        } else {
            buffer.extend_from_slice(&window[..used]);
            &buffer[..]
        };
        let full = seen.len() >= MAX_HEAD;
        if self.fresh {
            match detect::first_bytes(self.side, seen) {
                Verdict::Http => self.fresh = false,
                Verdict::More if end.is_none() && !full => {}
                Verdict::More => return self.die(Anomaly::NotHttp, seen.len(), used, sink),
                Verdict::Other(anomaly) => return self.die(anomaly, seen.len(), used, sink),
            }
        }
        if end.is_some() {
            if !self.begin(seen, sink) {
                self.skipped += seen.len() as u64;
                sink(HttpEvent::Anomaly(self.side.bad_head()));
                self.state = State::Searching(Box::new(Search::new(false)));
            }
        } else if full {
            self.skipped += seen.len() as u64;
            sink(HttpEvent::Anomaly(self.side.bad_head()));
            self.state = State::Searching(Box::new(Search::new(false)));
        } else {
            self.head = buffer;
        }
        used
    }

    pub(super) fn feed_chunked(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let State::Chunked(chunked) = &mut self.state else {
            return 0;
        };
        let (mut used, mut framing) = (0, 0);
        let truncated = loop {
            let rest = &bytes[used..];
            if rest.is_empty() {
                if framing > 0 {
                    sink(HttpEvent::Framing(framing));
                }
                return used;
            }
            match chunked.step(rest) {
                Step::Data(n) => {
                    sink(HttpEvent::Body(&rest[..n]));
                    used += n;
                }
                Step::Framing(n) => {
                    framing += n as u64;
                    used += n;
                }
                Step::End(n) => {
                    framing += n as u64;
                    used += n;
                    break false;
                }
                Step::Bad(n) => {
                    framing += n as u64;
                    used += n;
                    break true;
                }
            }
        };
        if framing > 0 {
            sink(HttpEvent::Framing(framing));
        }
        if truncated {
            sink(HttpEvent::Anomaly(Anomaly::BadChunk));
        }
        self.finish(truncated, sink);
        if truncated {
            self.state = State::Searching(Box::new(Search::new(false)));
        }
        used
    }

    pub(super) fn feed_search(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> usize {
        let State::Searching(search) = &mut self.state else {
            return 0;
        };
        let (used, found) = search.feed(self.side, bytes);
        self.skipped += used as u64;
        match found {
            Found::Nothing => {}
            Found::Head(head) => {
                let len = head.len() as u64;
                // A head that does not parse was no head: the search goes on.
                if self.begin(&head, sink) {
                    self.skipped -= len;
                }
            }
            Found::Other(anomaly) => {
                self.die(anomaly, 0, used, sink);
            }
        }
        used
    }

    /// Reports the message that `bytes`, a whole head, begins. `false` when it does not parse.
    fn begin(&mut self, bytes: &[u8], sink: &mut Sink<'_>) -> bool {
        let Some((head, headers)) = head::parse(self.side, bytes) else {
            return false;
        };
        let informational =
            matches!(&head, Head::Response(r) if (100..200).contains(&r.status) && r.status != 101);
        let framing = match &head {
            Head::Request(_) => headers.request_framing(),
            Head::Response(_) if informational => Some(Framing::None),
            Head::Response(r) => {
                headers.response_framing(r.status, self.expected.pop_front().unwrap_or_default())
            }
        };
        let Some(framing) = framing else {
            return false;
        };
        self.proven = true;
        let bytes = bytes.len() as u64;
        sink(HttpEvent::Head { head, bytes });
        self.state = State::Head;
        if informational {
            return true;
        }
        self.in_message = true;
        match framing {
            Framing::None | Framing::Length(0) => self.finish(false, sink),
            Framing::Length(len) => self.state = State::Length(len),
            Framing::Chunked => self.state = State::Chunked(Chunked::default()),
            Framing::UntilClose => self.state = State::UntilClose,
            Framing::Upgrade => {
                self.finish(false, sink);
                sink(HttpEvent::Upgraded);
                self.state = State::Upgraded;
            }
        }
        true
    }

    /// Ends the message under way.
    pub(super) fn finish(&mut self, truncated: bool, sink: &mut Sink<'_>) {
        self.in_message = false;
        self.state = State::Head;
        sink(HttpEvent::End { truncated });
    }

    /// `len` missing bytes took the place with them.
    pub(super) fn lose(&mut self, len: u64, sink: &mut Sink<'_>) {
        if self.in_message {
            sink(HttpEvent::BodyGap(len));
            self.finish(true, sink);
        } else {
            self.skipped = self.skipped.saturating_add(len);
        }
        // Which requests the missing responses answered is unknown, so what was expected can't be matched any more.
        self.expected.clear();
        self.resync();
    }

    /// The stream is not HTTP; `seen` bytes of it were held as a head, of which `used` were in the last feed.
    fn die(&mut self, anomaly: Anomaly, seen: usize, used: usize, sink: &mut Sink<'_>) -> usize {
        self.skipped += seen as u64;
        self.head = Vec::new();
        self.expected = VecDeque::new();
        self.state = State::Dead;
        sink(HttpEvent::Anomaly(anomaly));
        used
    }
}
