//! What is kept of a request while it is under way, so that its tokens can be counted at its end.
//!
//! Owns: the bytes, their bounds: for one request and for all of them together. Refuses: keeping part of a request; what
//! was lost is lost with its reason.

use super::CountOutcome;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Choices of one response whose texts are kept.
const MAX_CHOICES: usize = 128;
/// Bytes are asked of the budget in pieces of this size.
const STEP: usize = 16 * 1024;

/// Bytes that all requests together may keep. What is kept gives its part back when it is dropped, wherever that is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self, bytes: usize, limit: usize) -> bool {
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= limit)
        });
        taken.is_ok()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// How much may be kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// By one request.
    pub(crate) one: usize,
    /// By all.
    pub(crate) all: usize,
}

/// What is kept of one request.
#[derive(Debug)]
pub(crate) struct Kept {
    budget: Budget,
    limits: Limits,
    taken: usize,
    used: usize,
    request: Vec<u8>,
    texts: Vec<(u32, String)>,
    /// What is generated is not kept: the response will say how many tokens it has.
    request_only: bool,
    lost: Option<CountOutcome>,
}

impl Kept {
    pub(crate) fn new(budget: &Budget, limits: Limits) -> Kept {
        Kept {
            budget: budget.clone(),
            limits,
            taken: 0,
            used: 0,
            request: Vec::new(),
            texts: Vec::new(),
            request_only: false,
            lost: None,
        }
    }

    /// More of the request's body.
    pub(crate) fn request_data(&mut self, bytes: &[u8]) {
        if self.reserve(bytes.len()) {
            self.request.extend_from_slice(bytes);
        }
    }

    /// More of what a choice generates.
    pub(crate) fn text(&mut self, choice: u32, text: &str) {
        if self.request_only || text.is_empty() {
            return;
        }
        if self.texts.len() >= MAX_CHOICES {
            self.lose(CountOutcome::TooLarge);
        }
        if !self.reserve(text.len()) {
            return;
        }
        match self.texts.iter_mut().find(|(index, _)| *index == choice) {
            Some((_, kept)) => kept.push_str(text),
            None => self.texts.push((choice, text.to_owned())),
        }
    }

    /// The response will say how many tokens were generated.
    pub(crate) fn keep_request_only(&mut self) {
        self.request_only = true;
        self.texts = Vec::new();
    }

    /// It can't be counted: gives back what was kept.
    pub(crate) fn lose(&mut self, why: CountOutcome) {
        self.lost = self.lost.or(Some(why));
        self.request = Vec::new();
        self.texts = Vec::new();
        self.give_back();
    }

    /// Why it can't be counted.
    pub(crate) fn lost(&self) -> Option<CountOutcome> {
        self.lost
    }

    pub(crate) fn request(&self) -> &[u8] {
        &self.request
    }

    /// The request's body, where all of it is kept.
    pub(crate) fn whole_request(&self) -> Option<&[u8]> {
        (self.lost.is_none() && !self.request.is_empty()).then_some(&*self.request)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|(_, text)| text.as_str())
    }

    fn reserve(&mut self, bytes: usize) -> bool {
        if self.lost.is_some() {
            return false;
        }
        self.used = self.used.saturating_add(bytes);
        if self.used > self.taken {
            let more = (self.used - self.taken).next_multiple_of(STEP);
            if self.used > self.limits.one || !self.budget.take(more, self.limits.all) {
                self.lose(CountOutcome::TooLarge);
                return false;
            }
            self.taken += more;
        }
        true
    }

    fn give_back(&mut self) {
        self.budget.give_back(self.taken);
        self.taken = 0;
        self.used = 0;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        one: 100_000,
        all: 200_000,
    };

    #[test]
    fn what_is_kept_is_bounded_and_given_back() {
        let budget = Budget::default();
        let mut kept: Vec<Kept> = (0..3).map(|_| Kept::new(&budget, LIMITS)).collect();
        for one in &mut kept {
            one.request_data(&vec![b'x'; 90_000]);
        }
        assert_eq!(kept[1].lost(), None);
        assert_eq!(kept[2].lost(), Some(CountOutcome::TooLarge), "no room for all");
        assert!(budget.used() <= LIMITS.all && budget.used() >= 180_000);
        kept[0].text(0, &"y".repeat(20_000));
        assert_eq!(kept[0].lost(), Some(CountOutcome::TooLarge), "too much for one");
        assert!(kept[0].request().is_empty());
        kept[2].text(0, "more");
        assert_eq!(kept[2].texts().count(), 0, "lost is lost");
        drop(kept);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn choices_have_texts_of_their_own() {
        let mut kept = Kept::new(&Budget::default(), LIMITS);
        for (choice, text) in [(0, "a"), (1, "b"), (0, "c"), (1, "")] {
            kept.text(choice, text);
        }
        assert_eq!(kept.texts().collect::<Vec<_>>(), ["ac", "b"]);
        kept.keep_request_only();
        kept.text(0, "d");
        assert_eq!(kept.texts().count(), 0);
    }
}
