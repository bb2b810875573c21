//! Buckets of usage: the last ones of one width.
//!
//! Owns: which bucket a time is in, how many there are, how many keys each has. Refuses: clocks. One that was set may go
//! back or far ahead: buckets further from the present than the ring is long go, on either side.

use super::Row;
use super::key::{Key, OTHER};
use super::top::Heaviest;
use super::usage::Usage;
use std::collections::{BTreeMap, HashMap};

/// The buckets of one width.
#[derive(Debug)]
pub(super) struct Ring {
    /// Seconds.
    pub(super) width: u64,
    /// Buckets that are kept, the present one included.
    pub(super) keep: u64,
    max_keys: usize,
    /// By the unix time at which they begin.
    buckets: BTreeMap<u64, Bucket>,
}

/// One span of time.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    keys: HashMap<Key, Entry>,
    /// Some key has changed.
    changed: bool,
    pub(super) heaviest: Heaviest,
}

#[derive(Debug, Default)]
struct Entry {
    usage: Usage,
    /// It differs from what was last told to be stored.
    changed: bool,
}

impl Ring {
    pub(super) fn new(width: u64, keep: u64, max_keys: usize) -> Ring {
        Ring {
            width,
            keep,
            max_keys: max_keys.max(1),
            buckets: BTreeMap::new(),
        }
    }

    /// Where the bucket of a time begins.
    pub(super) fn start(&self, at: u64) -> u64 {
        at - at % self.width
    }

    /// The bucket of the present. Where it is new, those too far from it go.
    pub(super) fn present(&mut self, now: u64) -> &mut Bucket {
        let start = self.start(now);
        if !self.buckets.contains_key(&start) {
            let reach = self.width.saturating_mul(self.keep);
            self.buckets.retain(|other, _| other.abs_diff(start) < reach);
        }
        self.buckets.entry(start).or_default()
    }

    /// Adds what more was used. `true`: not under its own key, of which there are too many.
    pub(super) fn add(&mut self, now: u64, key: Key, more: &Usage) -> bool {
        let max_keys = self.max_keys;
        self.present(now).add(key, more, max_keys)
    }

    /// Takes what was stored, in place of what there is. `false`: it is too old, or there are too many keys.
    pub(super) fn restore(&mut self, now: u64, row: Row) -> bool {
        let Row {
            start, key, usage, ..
        } = row;
        let reach = self.width.saturating_mul(self.keep);
        if !start.is_multiple_of(self.width) || start.abs_diff(self.start(now)) >= reach {
            return false;
        }
        let max_keys = self.max_keys;
        let bucket = self.buckets.entry(start).or_default();
        if bucket.keys.len() >= most(max_keys) && !bucket.keys.contains_key(&key) {
            return false;
        }
        let changed = false;
        bucket.keys.insert(key, Entry { usage, changed });
        true
    }

    /// The bucket of a time that is over, where the ring reaches back so far.
    pub(super) fn past(&mut self, now: u64, at: u64) -> Option<&mut Bucket> {
        let start = self.start(at);
        let reach = self.width.saturating_mul(self.keep);
        let within = at <= now && self.start(now) - start < reach;
        within.then(|| self.buckets.entry(start).or_default())
    }

    /// Keys and what they used in buckets that begin within `from..to`.
    pub(super) fn between(&self, from: u64, to: u64) -> impl Iterator<Item = (&Key, &Usage)> {
        self.buckets(from, to)
            .flat_map(|(_, bucket)| bucket.keys.iter())
            .map(|(key, entry)| (key, &entry.usage))
    }

    /// Buckets that begin within `from..to`, the earliest first.
    pub(super) fn buckets(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Bucket)> {
        let range = from..to.max(from);
        self.buckets.range(range).map(|(start, bucket)| (*start, bucket))
    }

    /// What has changed since this was last asked, at most `most` of it: its bucket, key and usage so far.
    pub(super) fn changed(&mut self, most: usize, out: &mut Vec<Row>) {
        for (start, bucket) in self.buckets.iter_mut().filter(|(_, bucket)| bucket.changed) {
            for (key, entry) in bucket.keys.iter_mut().filter(|(_, entry)| entry.changed) {
                if out.len() >= most {
                    return;
                }
                entry.changed = false;
                out.push(Row {
                    width: self.width,
                    start: *start,
                    key: key.clone(),
                    usage: entry.usage.clone(),
                });
            }
            bucket.changed = false;
        }
    }

    /// Says that this was not stored after all.
    pub(super) fn not_stored(&mut self, start: u64, key: &Key) {
        if let Some(bucket) = self.buckets.get_mut(&start)
            && let Some(entry) = bucket.keys.get_mut(key)
        {
            entry.changed = true;
            bucket.changed = true;
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> Vec<usize> {
        self.buckets.values().map(|bucket| bucket.keys.len()).collect()
    }
}

/// Keys of a bucket, those included that stand for others.
const fn most(max_keys: usize) -> usize {
    max_keys + max_keys.div_ceil(4) + 1
}

impl Bucket {
    fn add(&mut self, key: Key, more: &Usage, max_keys: usize) -> bool {
        let (key, mut overflow) = key.short();
        let key = if self.keys.contains_key(&key) || self.keys.len() < max_keys {
            key
        } else {
            overflow = true;
            // Clients are the most by far: their model and scene are still told, while there is room for those.
            let of_other = Key {
                client: Some(OTHER.into()),
                ..key
            };
            if self.keys.contains_key(&of_other) || self.keys.len() + 1 < most(max_keys) {
                of_other
            } else {
                Key {
                    model: OTHER.into(),
                    scene: OTHER.into(),
                    client: Some(OTHER.into()),
                }
            }
        };
        self.changed = true;
        let entry = self.keys.entry(key).or_default();
        entry.changed = true;
        !entry.usage.add(more) || overflow
    }
}
