//! A map that knows which of its entries was touched least recently.
//!
//! Owns: slots, their order of use, the index by key. Refuses: deciding when something is evicted (`pipeline`).
//! Entries live in a slab linked into a list, so a touch costs a few stores and no allocation.

use crate::event::ConnId;
use std::{collections::HashMap, hash::Hash};

const NIL: usize = usize::MAX;

#[derive(Debug)]
struct Slot<V, K> {
    key: K,
    newer: usize,
    older: usize,
    value: Option<V>,
}

/// The map. A slot number stays valid until its entry is removed.
#[derive(Debug)]
pub(crate) struct LruMap<V, K = ConnId> {
    index: HashMap<K, usize>,
    slots: Vec<Slot<V, K>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

impl<V, K: Copy + Eq + Hash> LruMap<V, K> {
    pub(crate) fn new() -> LruMap<V, K> {
        LruMap {
            index: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: NIL,
            oldest: NIL,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn slot(&self, key: K) -> Option<usize> {
        self.index.get(&key).copied()
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<(K, &mut V)> {
        let entry = self.slots.get_mut(slot)?;
        entry.value.as_mut().map(|value| (entry.key, value))
    }

    /// The least recently touched slot.
    pub(crate) fn oldest(&self) -> Option<usize> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    /// Makes `slot` the most recently touched.
    pub(crate) fn touch(&mut self, slot: usize) {
        if self.newest != slot {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    /// Adds an entry as the most recently touched. `key` must not be there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> usize {
        let entry = Slot {
            key,
            newer: NIL,
            older: NIL,
            value: Some(value),
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot] = entry;
            slot
        } else {
            self.slots.push(entry);
            self.slots.len() - 1
        };
        self.index.insert(key, slot);
        self.link_newest(slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<(K, V)> {
        let value = self.slots.get_mut(slot)?.value.take()?;
        self.unlink(slot);
        let key = self.slots[slot].key;
        self.index.remove(&key);
        self.free.push(slot);
        Some((key, value))
    }

    /// Every slot in use, in slot order (deterministic for the same history).
    pub(crate) fn slots(&self) -> impl Iterator<Item = (usize, &V)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(slot, entry)| entry.value.as_ref().map(|value| (slot, value)))
    }

    fn unlink(&mut self, slot: usize) {
        let (newer, older) = (self.slots[slot].newer, self.slots[slot].older);
        match newer {
            NIL => self.newest = older,
            newer => self.slots[newer].older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.slots[older].newer = newer,
        }
    }

    fn link_newest(&mut self, slot: usize) {
        self.slots[slot].newer = NIL;
        self.slots[slot].older = self.newest;
        match self.newest {
            NIL => self.oldest = slot,
            newest => self.slots[newest].newer = slot,
        }
        self.newest = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The list agrees with a plain vector in which a touch moves an element to the back.
        #[test]
        fn it_agrees_with_a_vector(steps in proptest::collection::vec((0u8..3, 0u64..12), 0..200)) {
            let mut map = LruMap::new();
            let mut model: Vec<u64> = Vec::new();
            for (step, key) in steps {
                let slot = map.slot(ConnId(key));
                prop_assert_eq!(slot.is_some(), model.contains(&key));
                match (step, slot) {
                    (0, None) => {
                        map.insert(ConnId(key), key);
                        model.push(key);
                    }
                    (1, Some(slot)) => {
                        map.touch(slot);
                        model.retain(|k| *k != key);
                        model.push(key);
                    }
                    (2, Some(slot)) => {
                        prop_assert_eq!(map.remove(slot), Some((ConnId(key), key)));
                        model.retain(|k| *k != key);
                    }
                    _ => {}
                }
                prop_assert_eq!(map.len(), model.len());
                let oldest = map.oldest().and_then(|slot| map.get_mut(slot)).map(|(key, _)| key.0);
                prop_assert_eq!(oldest, model.first().copied());
                let mut held: Vec<u64> = map.slots().map(|(_, v)| *v).collect();
                held.sort_unstable();
                let mut expected = model.clone();
                expected.sort_unstable();
                prop_assert_eq!(held, expected);
            }
        }
    }
}
