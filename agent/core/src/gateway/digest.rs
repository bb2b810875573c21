//! A keyed digest of a request's body.
//!
//! Owns: that the same bytes give the same digest, however they were split. Refuses: keeping the bytes, and bodies of which
//! some are missing: they have none.

use crate::prefix::Seed;
use std::hash::Hasher as _;

/// A body while it comes in. Of one of which bytes are missing there is no digest: drop it.
#[derive(Debug, Clone)]
pub(crate) struct Digest {
    hasher: siphasher::sip::SipHasher13,
    empty: bool,
}

impl Digest {
    pub(crate) fn new(seed: Seed) -> Digest {
        Digest {
            hasher: seed.hasher(),
            empty: true,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.hasher.write(bytes);
        self.empty &= bytes.is_empty();
    }

    /// Of a body that is not empty.
    pub(crate) fn value(&self) -> Option<u64> {
        (!self.empty).then(|| self.hasher.finish())
    }
}
