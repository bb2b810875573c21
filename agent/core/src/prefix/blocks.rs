//! Which blocks of prompts were seen before: a bounded table of chained hashes.
//!
//! Owns: the hashes, the order in which blocks are forgotten, how far a prompt agrees with one before it. Refuses: keeping
//! tokens or text, and what an engine's cache would have made of it (`report`).
//!
//! A block's hash is made of its content and of the hash of the block before it, so a block is found only where all before
//! it are the same: that is how vLLM's cache finds its blocks. The hash is keyed with a seed of this process, so a table
//! tells nothing about a prompt to who has no prompt to compare with.

use crate::lru::LruMap;
use siphasher::sip::SipHasher13;
use std::hash::Hasher as _;

/// Units of a block: tokens, or pieces of text that stand in for them.
pub(super) const BLOCK: usize = 16;
/// Units of a prompt whose tags are handed on.
pub(crate) const TAGS: usize = 512;
/// Bytes that a block takes in the table, about: its slot and its place in the index, with the room that both leave free.
pub(super) const BLOCK_BYTES: usize = 128;

/// Keys all hashes of this process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seed(pub [u64; 2]);

impl Seed {
    pub(crate) fn hasher(self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }

    /// The hash that the first block of a chain follows.
    pub(super) fn root(self, parts: &[&[u8]]) -> u64 {
        let mut hasher = self.hasher();
        for part in parts {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    }

    fn chain(self, parent: u64, block: &[u32; BLOCK]) -> u64 {
        let mut hasher = self.hasher();
        hasher.write_u64(parent);
        for unit in block {
            hasher.write_u32(*unit);
        }
        hasher.finish()
    }

    /// A byte, never 0, that tells two units apart, nearly always.
    fn tag(self, unit: u32) -> u8 {
        // The odd number nearest to 2^64 over the golden ratio: it spreads numbers that are close over all bits.
        let mixed = (u64::from(unit) ^ self.0[0]).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.0[1];
        ((mixed >> 56) as u8).max(1)
    }
}

/// How far a prompt agrees with one before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Units of the prompt.
    pub(crate) units: u64,
    /// Units of whole blocks, from the first on, that were all seen before.
    pub(crate) blocks: u64,
    /// The first unit that differs from the prompt that came this far last; `units` where none does.
    pub(crate) differs: u64,
    /// A byte for each of its first units, which tells them from others, nearly always.
    pub(crate) tags: Box<[u8]>,
}

/// Where a chain goes on: the end of a prompt, to which an answer is added.
#[derive(Debug, Clone)]
pub(crate) struct Tail {
    parent: u64,
    open: [u32; BLOCK],
    len: usize,
}

/// Zeros before there is a block.
type Tags = [u8; BLOCK];

/// The table.
#[derive(Debug)]
pub(super) struct Blocks {
    seed: Seed,
    /// By hash. The tags of the block that followed it last tell where within a block a prompt differs.
    table: LruMap<Tags, u64>,
    most: usize,
    forgotten: u64,
    /// Slots of the prompt at hand.
    path: Vec<usize>,
}

impl Blocks {
    /// A table of at most so many bytes, about.
    pub(super) fn new(seed: Seed, bytes: usize) -> Blocks {
        Blocks {
            seed,
            table: LruMap::new(),
            most: (bytes / BLOCK_BYTES).max(BLOCK),
            forgotten: 0,
            path: Vec::new(),
        }
    }

    /// A prompt that follows `root`: how far it was seen before, and where it ends. From now on, it was seen.
    pub(super) fn see(&mut self, root: u64, units: impl Iterator<Item = u32>) -> (Shared, Tail) {
        let mut shared = Shared::default();
        let mut tail = Tail {
            parent: root,
            open: [0; BLOCK],
            len: 0,
        };
        self.path.clear();
        let slot = self.slot(root);
        self.path.push(slot);
        let mut same = true;
        let mut tags = Vec::new();
        for unit in units {
            shared.units += 1;
            if tags.len() < TAGS {
                tags.push(self.seed.tag(unit));
            }
            tail.open[tail.len] = unit;
            tail.len += 1;
            if tail.len < BLOCK {
                continue;
            }
            same = same && self.is_next(&tail, &mut shared);
            self.close(&mut tail);
        }
        if same {
            self.compare(&tail, &mut shared);
        }
        if tail.len > 0 {
            self.tag(&tail);
        }
        shared.tags = tags.into();
        // The root last, as the newest: what is forgotten first of a prompt is its end.
        for slot in self.path.drain(..).rev() {
            self.table.touch(slot);
        }
        (shared, tail)
    }

    /// Another unit behind a prompt. A block counts as seen with the first unit after it: until then its last one has
    /// only been chosen, and is in no cache.
    pub(super) fn grow(&mut self, tail: &mut Tail, unit: u32) {
        if tail.len == BLOCK {
            self.path.clear();
            self.close(tail);
        }
        if let Some(open) = tail.open.get_mut(tail.len) {
            *open = unit;
            tail.len += 1;
        }
    }

    /// Blocks that were forgotten to stay within bounds.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Bytes, about.
    pub(super) fn bytes(&self) -> usize {
        self.table.len() * BLOCK_BYTES + self.path.capacity() * size_of::<usize>()
    }

    /// The open block is full: was it seen?
    fn is_next(&mut self, tail: &Tail, shared: &mut Shared) -> bool {
        let hash = self.seed.chain(tail.parent, &tail.open);
        if self.table.slot(hash).is_some() {
            shared.blocks = shared.units;
            shared.differs = shared.units;
            return true;
        }
        self.compare(tail, shared);
        false
    }

    /// How far the open block is like the one that came in its place last.
    fn compare(&mut self, tail: &Tail, shared: &mut Shared) {
        let tags = self
            .table
            .slot(tail.parent)
            .and_then(|slot| self.table.get_mut(slot));
        let Some((_, tags)) = tags else { return };
        let open = tail.open.iter().take(tail.len);
        let same = open
            .zip(tags.iter())
            .take_while(|(unit, tag)| self.seed.tag(**unit) == **tag);
        shared.differs = shared.blocks + same.count() as u64;
    }

    /// The open block is full: it was seen, and the next one begins.
    fn close(&mut self, tail: &mut Tail) {
        self.tag(tail);
        tail.parent = self.seed.chain(tail.parent, &tail.open);
        tail.len = 0;
        let slot = self.slot(tail.parent);
        self.path.push(slot);
    }

    /// The open block, as far as it goes, is what came in its place last.
    fn tag(&mut self, tail: &Tail) {
        let slot = self.table.slot(tail.parent);
        if let Some((_, known)) = slot.and_then(|slot| self.table.get_mut(slot)) {
            *known = Tags::default();
            for (tag, unit) in known.iter_mut().zip(&tail.open).take(tail.len) {
                *tag = self.seed.tag(*unit);
            }
        }
    }

    fn slot(&mut self, hash: u64) -> usize {
        if let Some(slot) = self.table.slot(hash) {
            return slot;
        }
        while self.table.len() >= self.most
            && let Some(oldest) = self.table.oldest()
        {
            self.table.remove(oldest);
            self.forgotten += 1;
        }
        self.table.insert(hash, Tags::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEED: Seed = Seed([7, 11]);

    fn blocks() -> Blocks {
        Blocks::new(SEED, 1 << 20)
    }

    fn see(blocks: &mut Blocks, units: &[u32]) -> (u64, u64) {
        let root = SEED.root(&[b"engine"]);
        let (shared, _) = blocks.see(root, units.iter().copied());
        assert_eq!(shared.units, units.len() as u64);
        (shared.blocks, shared.differs)
    }

    #[test]
    fn a_prompt_agrees_up_to_where_it_differs() {
        let long: Vec<u32> = (0..100).collect();
        let with = |at: usize| {
            let mut other = long.clone();
            other[at] = 9_999;
            other
        };
        for (before, prompt, expected) in [
            (&[][..], &long[..], (0, 0)),
            (&long[..], &long[..], (96, 100)),
            (&long[..], &long[..40], (32, 40)),
            (&long[..40], &long[..], (32, 40)),
            (&long[..], &with(50)[..], (48, 50)),
            (&long[..], &with(0)[..], (0, 0)),
            (&long[..], &with(15)[..], (0, 15)),
            (&long[..], &with(98)[..], (96, 98)),
            (&long[..], &[][..], (0, 0)),
        ] {
            let mut blocks = blocks();
            see(&mut blocks, before);
            assert_eq!(see(&mut blocks, prompt), expected, "{} {prompt:?}", before.len());
        }
    }

    #[test]
    fn other_roots_and_seeds_share_nothing() {
        let units = || 0..64;
        let mut blocks = blocks();
        blocks.see(SEED.root(&[b"a", b"b"]), units());
        assert_eq!(blocks.see(SEED.root(&[b"ab", b""]), units()).0.blocks, 0);
        assert_ne!(SEED.root(&[b"a"]), Seed([7, 12]).root(&[b"a"]));
    }

    #[test]
    fn an_answer_counts_once_another_token_follows() {
        let root = SEED.root(&[b"e"]);
        for (answer, expected) in [(12, 16), (13, 32), (28, 32), (29, 48)] {
            let mut blocks = blocks();
            let (_, mut tail) = blocks.see(root, 0..20);
            for unit in 20..20 + answer {
                blocks.grow(&mut tail, unit);
            }
            let (shared, _) = blocks.see(root, 0..200);
            assert_eq!(shared.blocks, expected, "{answer}");
        }
    }

    #[test]
    fn the_end_of_a_prompt_is_forgotten_first() {
        let mut blocks = Blocks::new(SEED, 10 * BLOCK_BYTES);
        assert_eq!(blocks.most, 16);
        // A root and twelve blocks; then a root and four.
        blocks.see(1, 0..192);
        blocks.see(2, 0..64);
        assert_eq!(blocks.forgotten(), 2);
        assert_eq!(blocks.see(1, 0..192).0.blocks, 160);
    }

    proptest! {
        #[test]
        fn bounded_and_never_more_than_the_prompt(
            prompts in proptest::collection::vec(proptest::collection::vec(0_u32..3, 0..200), 1..40),
            most in 1_usize..64,
        ) {
            let mut blocks = Blocks::new(SEED, most * BLOCK_BYTES);
            for prompt in &prompts {
                let (shared, mut tail) = blocks.see(5, prompt.iter().copied());
                prop_assert_eq!(shared.units, prompt.len() as u64);
                prop_assert!(shared.blocks <= shared.differs && shared.differs <= shared.units);
                prop_assert_eq!(shared.blocks % BLOCK as u64, 0);
                for unit in prompt {
                    blocks.grow(&mut tail, *unit);
                }
                prop_assert!(blocks.table.len() <= most.max(BLOCK));
            }
        }

        #[test]
        fn the_same_again_shares_all_whole_blocks(prompt in proptest::collection::vec(any::<u32>(), 0..400)) {
            let mut blocks = blocks();
            see(&mut blocks, &prompt);
            let whole = prompt.len() - prompt.len() % BLOCK;
            prop_assert_eq!(see(&mut blocks, &prompt).0, whole as u64);
        }
    }
}
