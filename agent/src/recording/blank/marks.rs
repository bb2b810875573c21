//! What the core's decoder found in one feed, kept until the line machine has met each of it.
//!
//! Owns: the reduction of the decoder's events to marks, and where its body slices lie in the bytes. Refuses: judging.

use super::body::BodyBlank;
use infertap_core::Anomaly;
use infertap_core::wire::http1::{Head, HttpEvent};
use std::collections::VecDeque;
use std::ops::Range;

/// What the decoder found, reduced to what matters here, in stream order.
#[derive(Debug)]
pub(super) enum Mark {
    Head {
        body: Box<BodyBlank>,
        bytes: u64,
        informational: bool,
    },
    Framing,
    End {
        truncated: bool,
    },
    Upgraded,
    Missing(u64),
    Broken,
    Foreign,
}

/// What the other direction has to be told.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Methods of requests, in order.
    pub(super) methods: Vec<String>,
    /// The connection is no longer HTTP.
    pub(super) upgraded: bool,
}

/// The decoder's findings in one feed: ranges of body, each with the marks before it.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub(super) done: Vec<(Range<usize>, VecDeque<Mark>)>,
    /// Marks since the last body.
    pub(super) current: VecDeque<Mark>,
    /// A body slice did not lie within the bytes that were fed.
    pub(super) strange: bool,
}

impl Parts {
    pub(super) fn body(&mut self, fed: &[u8], slice: &[u8]) {
        let start = (slice.as_ptr() as usize).wrapping_sub(fed.as_ptr() as usize);
        match start.checked_add(slice.len()) {
            Some(end) if end <= fed.len() => {
                self.done.push((start..end, std::mem::take(&mut self.current)));
            }
            _ => self.strange = true,
        }
    }

    pub(super) fn first_head(&self) -> Option<u64> {
        let before_bodies = self.done.iter().flat_map(|(_, marks)| marks);
        before_bodies.chain(&self.current).find_map(|mark| match mark {
            Mark::Head { bytes, .. } => Some(*bytes),
            _ => None,
        })
    }

    /// Forgets what was found before the first head.
    pub(super) fn drop_before_head(&mut self) {
        let has_head = |marks: &VecDeque<Mark>| marks.iter().any(|mark| matches!(mark, Mark::Head { .. }));
        let first = self
            .done
            .iter()
            .position(|(_, marks)| has_head(marks))
            .unwrap_or(self.done.len());
        self.done.drain(..first);
        let marks = self
            .done
            .first_mut()
            .map_or(&mut self.current, |(_, marks)| marks);
        while marks
            .front()
            .is_some_and(|mark| !matches!(mark, Mark::Head { .. } | Mark::Foreign))
        {
            marks.pop_front();
        }
    }
}

/// Reduces an event (any but a body) to its mark.
pub(super) fn note(event: HttpEvent<'_>, told: &mut Told, marks: &mut VecDeque<Mark>) {
    marks.push_back(match event {
        HttpEvent::Head { head, bytes } => {
            let body = Box::new(BodyBlank::new(&head));
            let informational =
                matches!(&head, Head::Response(r) if (100..200).contains(&r.status) && r.status != 101);
            if let Head::Request(request) = head {
                told.methods.push(request.method);
            }
            Mark::Head {
                body,
                bytes,
                informational,
            }
        }
        HttpEvent::Framing(_) => Mark::Framing,
        HttpEvent::End { truncated } => Mark::End { truncated },
        HttpEvent::Upgraded => {
            told.upgraded = true;
            Mark::Upgraded
        }
        HttpEvent::BodyGap(len) => Mark::Missing(len),
        HttpEvent::Anomaly(Anomaly::Gap) | HttpEvent::Body(_) => return,
        HttpEvent::Anomaly(Anomaly::NotHttp | Anomaly::Tls | Anomaly::Http2) => Mark::Foreign,
        HttpEvent::Anomaly(_) => Mark::Broken,
    });
}
