//! Physical GPU memory that is mapped by hand (`cuMemCreate`, `cuMemMap`): how much of it a process holds.
//!
//! Owns: when such memory is free: once its handle is given back and nothing maps it, in whichever order. Refuses:
//! handles that were made before they could be seen, or that came from another process: those are not this process's.

use std::collections::{BTreeMap, HashMap};

/// Handles and mappings of one process that are followed; allocators make one each 2 MiB to 1 GiB.
const MAX_ENTRIES: usize = 262_144;
/// Bytes of one handle that are believed: 32 TiB, more than any node has. Sums of so many stay within 64 bits.
const MAX_BYTES: u64 = 1 << 45;

/// Something happened to physical memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CudaMapping {
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// What.
    pub mapping: Mapping,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Memory was made.
    Created {
        /// Stands for it.
        handle: u64,
        /// How much.
        bytes: u64,
    },
    /// Memory was mapped.
    Mapped {
        /// Where.
        address: u64,
        /// Bytes of addresses.
        bytes: u64,
        /// Which memory.
        handle: u64,
    },
    /// All that is mapped in a range of addresses is mapped there no longer.
    Unmapped {
        /// First address.
        address: u64,
        /// Bytes of addresses.
        bytes: u64,
    },
    /// The handle was given back.
    Released {
        /// Which.
        handle: u64,
    },
}

/// The physical memory of one process.
#[derive(Debug, Clone, Default)]
pub struct MappedMemory {
    handles: HashMap<u64, Physical>,
    mapped: BTreeMap<u64, u64>,
    held: u64,
    overflowed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Physical {
    bytes: u64,
    mappings: u32,
    released: bool,
}

impl MappedMemory {
    /// Bytes that the process holds; `None` when there was no room to follow all of it.
    pub fn held(&self) -> Option<u64> {
        (!self.overflowed).then_some(self.held)
    }

    /// Takes what happened.
    pub fn handle(&mut self, mapping: Mapping) {
        match mapping {
            Mapping::Created { handle, bytes } => {
                if self.handles.len() >= MAX_ENTRIES {
                    self.overflowed = true;
                    return;
                }
                let made = Physical {
                    bytes: bytes.min(MAX_BYTES),
                    mappings: 0,
                    released: false,
                };
                // A handle that is given out again was given back in a way that was not seen.
                if let Some(before) = self.handles.insert(handle, made) {
                    self.held -= before.bytes;
                }
                self.held += made.bytes;
            }
            Mapping::Mapped { address, handle, .. } => {
                let Some(physical) = self.handles.get_mut(&handle) else {
                    return;
                };
                if self.mapped.len() >= MAX_ENTRIES {
                    self.overflowed = true;
                    return;
                }
                physical.mappings += 1;
                if let Some(before) = self.mapped.insert(address, handle) {
                    self.unmap(before);
                }
            }
            Mapping::Unmapped { address, bytes } => {
                let end = address.saturating_add(bytes);
                let gone: Vec<u64> = self.mapped.range(address..end).map(|(at, _)| *at).collect();
                for at in gone {
                    if let Some(handle) = self.mapped.remove(&at) {
                        self.unmap(handle);
                    }
                }
            }
            Mapping::Released { handle } => {
                if let Some(physical) = self.handles.get_mut(&handle) {
                    physical.released = true;
                }
                self.free(handle);
            }
        }
    }

    fn unmap(&mut self, handle: u64) {
        if let Some(physical) = self.handles.get_mut(&handle) {
            physical.mappings = physical.mappings.saturating_sub(1);
        }
        self.free(handle);
    }

    fn free(&mut self, handle: u64) {
        let unused = |physical: &Physical| physical.released && physical.mappings == 0;
        if self.handles.get(&handle).is_some_and(unused)
            && let Some(physical) = self.handles.remove(&handle)
        {
            self.held -= physical.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn created(handle: u64) -> Mapping {
        Mapping::Created {
            handle,
            bytes: 2 * MIB,
        }
    }

    fn mapped(handle: u64, address: u64) -> Mapping {
        Mapping::Mapped {
            address,
            bytes: 2 * MIB,
            handle,
        }
    }

    fn held_after(mappings: &[Mapping]) -> Option<u64> {
        let mut memory = MappedMemory::default();
        for mapping in mappings {
            memory.handle(*mapping);
        }
        memory.held()
    }

    #[test]
    fn memory_is_free_once_its_handle_is_given_back_and_nothing_maps_it() {
        let all = Mapping::Unmapped {
            address: 0x1000,
            bytes: 4 * MIB,
        };
        let release = |handle| Mapping::Released { handle };
        // llama.cpp's pool gives the handle back as soon as it is mapped, and unmaps the whole pool at its end.
        let pool = [
            created(1),
            mapped(1, 0x1000),
            release(1),
            created(2),
            mapped(2, 0x1000 + 2 * MIB),
            release(2),
        ];
        assert_eq!(held_after(&pool), Some(4 * MIB));
        assert_eq!(held_after(&[&pool[..], &[all]].concat()), Some(0));
        // PyTorch's expandable segments unmap first.
        let segment = [created(1), mapped(1, 0x1000), all, release(1)];
        assert_eq!(held_after(&segment[..3]), Some(2 * MIB));
        assert_eq!(held_after(&segment), Some(0));
        // Mapped twice.
        let twice = [created(1), mapped(1, 0x1000), mapped(1, 1 << 40), release(1), all];
        assert_eq!(held_after(&twice), Some(2 * MIB));
    }

    #[test]
    fn what_was_not_seen_made_is_nobodys() {
        let unknown = [
            mapped(9, 0x1000),
            Mapping::Released { handle: 9 },
            Mapping::Unmapped {
                address: 0,
                bytes: u64::MAX,
            },
        ];
        assert_eq!(held_after(&unknown), Some(0));
        assert_eq!(
            held_after(&[created(1), created(1)]),
            Some(2 * MIB),
            "a handle that came again"
        );
    }

    #[test]
    fn what_can_not_all_be_followed_is_not_told() {
        let many: Vec<Mapping> = (0..=MAX_ENTRIES as u64).map(created).collect();
        assert_eq!(held_after(&many[1..]), Some(MAX_ENTRIES as u64 * 2 * MIB));
        assert_eq!(held_after(&many), None);
    }

    fn any_mapping() -> impl Strategy<Value = Mapping> {
        let small = 0_u64..6;
        prop_oneof![
            (small.clone(), any::<u64>()).prop_map(|(handle, bytes)| Mapping::Created { handle, bytes }),
            (small.clone(), small.clone()).prop_map(|(address, handle)| Mapping::Mapped {
                address,
                bytes: 1,
                handle
            }),
            (small.clone(), any::<u64>()).prop_map(|(address, bytes)| Mapping::Unmapped { address, bytes }),
            small.prop_map(|handle| Mapping::Released { handle }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_the_sum_is_that_of_the_handles(mappings in proptest::collection::vec(any_mapping(), 0..200)) {
            let mut memory = MappedMemory::default();
            for mapping in mappings {
                memory.handle(mapping);
                let sum: u64 = memory.handles.values().map(|physical| physical.bytes).sum();
                prop_assert_eq!(memory.held(), Some(sum));
            }
        }
    }
}
