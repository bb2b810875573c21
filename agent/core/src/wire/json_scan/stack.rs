//! The containers that are open, and which wanted paths lead into them.
//!
//! Owns: matching of keys and indices against paths, in bits. Refuses: bytes.

use super::MAX_DEPTH;
use std::borrow::Cow;

/// Most parts of a path.
const MAX_PARTS: usize = 32;
const WORDS: usize = MAX_DEPTH / 64;

/// What the paths say about one level of nesting, paths as bits.
#[derive(Debug, Clone, Default)]
struct Level {
    /// Paths whose part here is `*`.
    any: u64,
    /// Paths whose part here is `0`: the first element.
    first: u64,
    /// Paths whose last part is here.
    last: u64,
    /// Each different part, and the paths that have it here.
    names: Vec<(Cow<'static, str>, u64)>,
}

/// Open containers.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    levels: Vec<Level>,
    paths: u32,
    depth: usize,
    /// Which open containers are arrays, one bit each.
    arrays: [u64; WORDS],
    /// In which open arrays the first element is read, likewise.
    at_first: [u64; WORDS],
    /// Paths whose first parts lead to the n-th open container; only as deep as paths go.
    inside: Vec<u64>,
    /// Paths that go on from the innermost container through the current key.
    key: u64,
    longest_key: usize,
}

impl Stack {
    pub(super) fn new(paths: &'static [&'static str]) -> Stack {
        Stack::of(paths, Cow::Borrowed)
    }

    /// Of paths that are not part of the program.
    pub(super) fn of_owned(paths: &[String]) -> Stack {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        Stack::of(&paths, |part| Cow::Owned(part.to_owned()))
    }

    fn of<'p>(paths: &[&'p str], keep: impl Fn(&'p str) -> Cow<'static, str>) -> Stack {
        assert!(paths.len() <= 64, "at most 64 paths");
        let mut levels: Vec<Level> = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let count = path.split('.').count();
            for (part_index, part) in path.split('.').enumerate() {
                if part_index == levels.len() {
                    levels.push(Level::default());
                }
                let level = &mut levels[part_index];
                level.first |= u64::from(part == "0") << index;
                if part == "*" {
                    level.any |= 1 << index;
                } else if let Some((_, paths)) = level.names.iter_mut().find(|(name, _)| *name == part) {
                    *paths |= 1 << index;
                } else {
                    level.names.push((keep(part), 1 << index));
                }
                level.last |= u64::from(part_index + 1 == count) << index;
            }
        }
        assert!(levels.len() <= MAX_PARTS, "at most {MAX_PARTS} parts in a path");
        let longest_key = levels
            .iter()
            .flat_map(|level| &level.names)
            .map(|(name, _)| name.len())
            .max();
        Stack {
            inside: Vec::with_capacity(levels.len()),
            levels,
            paths: paths.len() as u32,
            depth: 0,
            arrays: [0; WORDS],
            at_first: [0; WORDS],
            key: 0,
            longest_key: longest_key.unwrap_or(0),
        }
    }

    pub(super) fn clear(&mut self) {
        self.depth = 0;
        self.inside.clear();
        self.key = 0;
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn in_array(&self) -> bool {
        self.depth > 0 && self.is_array(self.depth - 1)
    }

    fn is_array(&self, level: usize) -> bool {
        self.arrays[level / 64] & (1 << (level % 64)) != 0
    }

    /// Paths that lead into the innermost container.
    fn innermost(&self) -> u64 {
        match self.depth {
            0 => 0,
            depth => self.inside.get(depth - 1).copied().unwrap_or(0),
        }
    }

    /// What the paths say about the members of the innermost container.
    fn level(&self) -> Option<&Level> {
        self.levels.get(self.depth.checked_sub(1)?)
    }

    /// Paths that go through the value about to be read.
    fn through(&self) -> u64 {
        if self.in_array() {
            let open = self.depth - 1;
            let first = self.at_first[open / 64] & (1 << (open % 64)) != 0;
            let here = self
                .level()
                .map_or(0, |level| level.any | if first { level.first } else { 0 });
            self.innermost() & here
        } else {
            self.key
        }
    }

    /// Paths that the value about to be read is at.
    pub(super) fn wanted_here(&self) -> u64 {
        self.through() & self.level().map_or(0, |level| level.last)
    }

    /// How many bytes of a key are needed to tell whether it is wanted; `None` when none here is.
    pub(super) fn key_limit(&self) -> Option<usize> {
        (self.innermost() != 0).then_some(self.longest_key)
    }

    /// The key of the value about to be read; `None` when it was longer than any wanted one.
    pub(super) fn set_key(&mut self, key: Option<&[u8]>) {
        let inside = self.innermost();
        self.key = match (key, self.level()) {
            (Some(key), Some(level)) if inside != 0 => level
                .names
                .iter()
                .find(|(name, _)| name.as_bytes() == key)
                .map_or(0, |(_, paths)| paths & inside),
            _ => 0,
        };
    }

    /// The next member of the innermost container comes.
    pub(super) fn next(&mut self) {
        if let Some(open) = self.depth.checked_sub(1) {
            self.at_first[open / 64] &= !(1 << (open % 64));
        }
    }

    /// Bytes are missing: nobody knows which element is read.
    pub(super) fn lost(&mut self) {
        self.at_first = [0; WORDS];
    }

    pub(super) fn no_key(&mut self) {
        self.key = 0;
    }

    /// Opens a container; `false` when the nesting is too deep.
    pub(super) fn push(&mut self, array: bool) -> bool {
        if self.depth == MAX_DEPTH {
            return false;
        }
        let inside = if self.depth == 0 {
            u64::MAX.checked_shr(64 - self.paths).unwrap_or(0)
        } else {
            self.through()
        };
        if self.inside.len() == self.depth && self.depth < self.levels.len() {
            self.inside.push(inside);
        }
        let bit = 1 << (self.depth % 64);
        self.at_first[self.depth / 64] |= bit;
        if array {
            self.arrays[self.depth / 64] |= bit;
        } else {
            self.arrays[self.depth / 64] &= !bit;
        }
        self.depth += 1;
        self.key = 0;
        true
    }

    /// Closes the innermost container, or, when `lenient`, the innermost of the right kind. `false` when it is of the
    /// other kind, or none is open.
    pub(super) fn pop(&mut self, array: bool, lenient: bool) -> bool {
        let level = if lenient {
            (0..self.depth).rev().find(|&level| self.is_array(level) == array)
        } else {
            self.depth
                .checked_sub(1)
                .filter(|&level| self.is_array(level) == array)
        };
        let Some(level) = level else {
            return false;
        };
        self.depth = level;
        self.inside.truncate(level);
        true
    }
}
