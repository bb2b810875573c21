//! The memory of engines, as the kernel accounts it: control groups and stall information.
//!
//! Owns: which groups an engine's processes are in, and which above them limit them. Refuses: when to read (`run`), and what
//! the numbers mean (the core's `pressure`).

use super::cgroup::{self, Hierarchies, Hierarchy};
use super::psi;
use infertap_core::pressure::{CgroupReading, CgroupVersion, MemoryReading};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// Processes of an engine that are asked for their groups; they are nearly always in one.
const MAX_PROCESSES: usize = 256;
/// Groups of an engine's processes, and groups above one that are looked at.
const MAX_GROUPS: usize = 16;
const MAX_ABOVE: usize = 8;

/// A group of an engine's processes: names in the hierarchy of each version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    unified: Option<Vec<String>>,
    memory: Option<Vec<String>>,
}

/// Reads the memory of engines.
#[derive(Debug)]
pub struct MemorySampler {
    proc: PathBuf,
    hierarchies: Hierarchies,
    /// Groups of each engine, as they were last.
    places: HashMap<Arc<str>, BTreeSet<Place>>,
}

impl MemorySampler {
    /// With the procfs at `proc`, in which the agent's process is `own_pid`.
    pub fn new(proc: impl Into<PathBuf>, own_pid: u32) -> MemorySampler {
        let proc = proc.into();
        MemorySampler {
            hierarchies: Hierarchies::find(&proc, own_pid),
            proc,
            places: HashMap::new(),
        }
    }

    /// Where control groups were found, for the operator; an error when nowhere.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn found(&self) -> Result<String, String> {
        let hierarchies = [
            ("version 2", &self.hierarchies.unified),
            ("version 1 memory", &self.hierarchies.memory),
        ];
        let found = hierarchies
            .iter()
            .filter_map(|(name, hierarchy)| {
                Some(format!("{name} at {}", hierarchy.as_ref()?.folder.display()))
            })
            .collect::<Vec<_>>();
        if found.is_empty() {
            return Err(
                "no control group hierarchy can be reached: memory of engines is not read. In a container, share \
                 the host's process ids (hostPID) and allow SYS_PTRACE, or mount the host's /sys/fs/cgroup"
                    .to_owned(),
            );
        }
        Ok(found.join(", "))
    }

    /// Reads the memory of an engine with these processes.
    pub fn read(&mut self, engine: &Arc<str>, pids: &[u32]) -> MemoryReading {
        let places: BTreeSet<Place> = pids
            .iter()
            .take(MAX_PROCESSES)
            .filter_map(|pid| self.place(*pid))
            .take(MAX_GROUPS)
            .collect();
        // A group that its processes have left is read once more: it may tell that they were killed. When all are gone, so
        // it goes on until the engine is found to be gone.
        let mut read = places.clone();
        read.extend(self.places.get(engine).into_iter().flatten().cloned());
        if !places.is_empty() {
            self.places.insert(Arc::clone(engine), places);
        }
        self.read_places(engine, &read)
    }

    /// Reads the groups of an engine that is gone once more: how it ended may be told there.
    pub fn last(&mut self, engine: &Arc<str>) -> Option<MemoryReading> {
        let places = self.places.remove(engine)?;
        let reading = self.read_places(engine, &places);
        (!reading.cgroups.is_empty()).then_some(reading)
    }

    fn place(&self, pid: u32) -> Option<Place> {
        let groups = cgroup::groups_of(&self.proc.join(pid.to_string()));
        let names = |hierarchy: &Option<Hierarchy>, path: Option<cgroup::GroupPath>| {
            let names = hierarchy.as_ref()?.names(&path?)?;
            // All that is in no group of its own is in the hierarchy's root, which is no engine's.
            (!names.is_empty()).then_some(names)
        };
        let place = Place {
            unified: names(&self.hierarchies.unified, groups.unified),
            memory: names(&self.hierarchies.memory, groups.memory),
        };
        (place.unified.is_some() || place.memory.is_some()).then_some(place)
    }

    fn read_places(&self, engine: &Arc<str>, places: &BTreeSet<Place>) -> MemoryReading {
        let mut cgroups = BTreeMap::new();
        for place in places {
            // Only one of the two has the memory controller: where that is version 1, version 2 has the stalls.
            if let (Some(hierarchy), Some(names), None) =
                (&self.hierarchies.unified, &place.unified, &place.memory)
            {
                groups(hierarchy, names, CgroupVersion::V2, &mut cgroups);
            }
            if let (Some(hierarchy), Some(names)) = (&self.hierarchies.memory, &place.memory) {
                groups(hierarchy, names, CgroupVersion::V1, &mut cgroups);
                let own = cgroups.get_mut(&path_of(names));
                if let (Some(own), Some(unified), Some(names)) =
                    (own, &self.hierarchies.unified, &place.unified)
                {
                    own.stalls = cgroup::stalls(&unified.folder_of(names));
                }
            }
        }
        let told = cgroups.values().any(|group| group.own && group.stalls.is_some());
        MemoryReading {
            engine: Arc::clone(engine),
            host: if told {
                None
            } else {
                psi::read(&self.proc.join("pressure/memory"))
            },
            cgroups: cgroups.into_values().collect(),
        }
    }
}

/// The group with these names, and those above it that have a limit.
fn groups(
    hierarchy: &Hierarchy,
    names: &[String],
    version: CgroupVersion,
    out: &mut BTreeMap<Arc<str>, CgroupReading>,
) {
    let mut own = true;
    for length in (1..=names.len()).rev().take(1 + MAX_ABOVE) {
        let names = names.get(..length).unwrap_or_default();
        let path = path_of(names);
        // One that processes are in may be above another such.
        if own || !out.contains_key(&path) {
            let group = cgroup::group(&hierarchy.folder_of(names), &path, version, own);
            let limited = |group: &CgroupReading| group.own || group.max.is_some() || group.high.is_some();
            if let Some(group) = group.filter(limited) {
                out.insert(path, group);
            }
        }
        own = false;
    }
}

fn path_of(names: &[String]) -> Arc<str> {
    names
        .iter()
        .flat_map(|name| ["/", name])
        .collect::<String>()
        .into()
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
