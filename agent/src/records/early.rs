//! Gateways' parts whose request was not told as ended yet, and the requests whose part may still come.
//!
//! Owns: how many wait at most, on both sides. Refuses: what is done with them. A part may come first: a request that waits
//! for its tokens to be counted is told later than its gateway is done with it.

use infertap_core::gateway::Joined;
use std::collections::VecDeque;

/// So many parts, most of them of requests that are not kept, and so many requests.
const MOST: usize = 2048;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Early {
    parts: VecDeque<Box<Joined>>,
    kept: VecDeque<u64>,
}

impl Early {
    /// A request was kept: its part, where that was first.
    pub(super) fn kept(&mut self, request: u64) -> Option<Box<Joined>> {
        // Mostly one of the last.
        if let Some(at) = self.parts.iter().rposition(|part| part.request == request) {
            return self.parts.remove(at);
        }
        if self.kept.len() >= MOST {
            self.kept.pop_front();
        }
        self.kept.push_back(request);
        None
    }

    /// A part came; whether its request was kept. Else it waits for that.
    pub(super) fn came(&mut self, part: &Joined) -> bool {
        if let Some(at) = self.kept.iter().rposition(|id| *id == part.request) {
            self.kept.remove(at);
            return true;
        }
        if self.parts.len() >= MOST {
            self.parts.pop_front();
        }
        self.parts.push_back(Box::new(part.clone()));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::metrics::gateway_tests::joined;

    #[test]
    fn either_may_be_first_and_neither_without_end() {
        let mut early = Early::default();
        assert!(!early.came(&joined(1)));
        assert_eq!(early.kept(1).map(|part| part.request), Some(1));
        assert_eq!(early.kept(1), None, "it is with its request");
        assert!(early.came(&joined(1)));
        for request in 2..10_000 {
            early.came(&joined(request));
            early.kept(100_000 + request);
        }
        assert_eq!((early.parts.len(), early.kept.len()), (MOST, MOST));
        assert_eq!(early.kept(2), None, "given up");
        assert!(early.kept(9_999).is_some());
    }
}
