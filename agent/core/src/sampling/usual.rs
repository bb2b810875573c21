//! How long requests of a model and scene usually take: the running P99 of each measure.
//!
//! Owns: its histograms (eight bins to a doubling, so that a P99 is within a tenth), when they forget, how many there are.
//! Refuses: limits that do not depend on other requests.

use super::Rule;
use crate::Nanos;
use std::collections::HashMap;
use std::sync::Arc;

/// Pairs of model and scene. Past it, the one that had no request for longest begins anew when it has one again.
const GROUPS: usize = 256;
/// Observations of one generation: the P99 is over the last one to two of them.
const GENERATION: u64 = 5000;
/// A generation also ends after this time, once it has enough to judge by.
const AGE: Nanos = 3_600_000_000_000;
const SMALLEST_S: f64 = 1e-4;
const PER_DOUBLING: f64 = 8.0;
/// From 100 µs to about an hour.
const BINS: usize = 200;

/// What is measured of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Time to the first token.
    Ttft,
    /// P99 of the gaps between tokens.
    Itl,
    /// End to end.
    E2e,
}

impl Measure {
    /// The rule by which it is slow.
    pub(super) const fn rule(self) -> Rule {
        match self {
            Measure::Ttft => Rule::SlowTtft,
            Measure::Itl => Rule::SlowItl,
            Measure::E2e => Rule::SlowE2e,
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Usual {
    after: u64,
    groups: HashMap<(Arc<str>, Arc<str>), Group>,
}

impl Usual {
    /// `after`: observations before anything is unusual; 0: nothing ever is.
    pub(super) fn new(after: u64) -> Usual {
        Usual {
            after,
            groups: HashMap::new(),
        }
    }

    /// Another number of observations from here on; those there are count.
    pub(super) fn ask_after(&mut self, after: u64) {
        self.after = after;
        self.groups.values_mut().for_each(|group| group.after = after);
    }

    /// The one of a model and scene.
    pub(super) fn group(&mut self, now: Nanos, model: &Arc<str>, scene: &Arc<str>) -> &mut Group {
        let key = (Arc::clone(model), Arc::clone(scene));
        if self.groups.len() >= GROUPS && !self.groups.contains_key(&key) {
            let oldest = self.groups.iter().min_by_key(|(_, group)| group.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.groups.remove(&oldest);
            }
        }
        let after = self.after;
        let group = self.groups.entry(key).or_insert_with(|| Group {
            after,
            used: now,
            spreads: Default::default(),
        });
        group.used = now;
        group
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }
}

/// A model and scene.
#[derive(Debug)]
pub(super) struct Group {
    after: u64,
    /// When it last had a request.
    used: Nanos,
    spreads: [Spread; 3],
}

impl Group {
    /// It is above the P99 of those before.
    pub(super) fn exceeds(&self, measure: Measure, seconds: f64) -> bool {
        let spread = &self.spreads[measure as usize];
        self.after > 0
            && spread.count() >= self.after
            && spread.p99_bin().is_some_and(|usual| bin(seconds) > usual)
    }

    /// Adds one.
    pub(super) fn add(&mut self, now: Nanos, measure: Measure, seconds: f64) {
        self.spreads[measure as usize].add(now, seconds, self.after);
    }
}

/// One measure.
#[derive(Debug, Default)]
struct Spread {
    now: Generation,
    before: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    since: Nanos,
    count: u64,
    /// Empty before the first.
    bins: Box<[u32]>,
}

impl Spread {
    fn count(&self) -> u64 {
        self.now.count + self.before.count
    }

    fn add(&mut self, now: Nanos, seconds: f64, after: u64) {
        let generation = &self.now;
        let old = generation.count >= after && now.saturating_sub(generation.since) >= AGE;
        if generation.count >= GENERATION.max(after) || (old && generation.count > 0) {
            self.before = std::mem::take(&mut self.now);
        }
        let generation = &mut self.now;
        if generation.bins.is_empty() {
            generation.bins = vec![0; BINS].into();
            generation.since = now;
        }
        if let Some(bin) = generation.bins.get_mut(bin(seconds)) {
            *bin = bin.saturating_add(1);
            generation.count += 1;
        }
    }

    /// The bin of the P99: the lowest above which lies at most one in a hundred.
    fn p99_bin(&self) -> Option<usize> {
        let mut above = 0;
        let most = self.count() / 100;
        let of = |generation: &Generation, bin: usize| {
            u64::from(generation.bins.get(bin).copied().unwrap_or_default())
        };
        for bin in (0..BINS).rev() {
            above += of(&self.now, bin) + of(&self.before, bin);
            if above > most {
                return Some(bin);
            }
        }
        None
    }
}

fn bin(seconds: f64) -> usize {
    (((seconds / SMALLEST_S).max(1.0).log2() * PER_DOUBLING) as usize).min(BINS - 1)
}
