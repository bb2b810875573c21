//! Which engine a process belongs to.
//!
//! Owns: the map from processes to engines, kept by discovery's findings, forks and exits; its bounds. Refuses: finding
//! engines (the agent's `discover`).

use crate::EngineInfo;
use std::{collections::HashMap, sync::Arc};

/// Engines and processes known at once; a host has far fewer.
const MAX_ENGINES: usize = 1024;
const MAX_PROCESSES: usize = 65_536;

/// The map from processes to the engines that they are of.
#[derive(Debug, Default)]
pub struct Engines {
    by_id: HashMap<Arc<str>, Arc<EngineInfo>>,
    owners: HashMap<u32, Arc<str>>,
    epoch: u64,
}

impl Engines {
    /// Changes whenever an answer of [`Engines::of`] may.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The engine of a process.
    pub fn of(&self, tgid: u32) -> Option<Arc<EngineInfo>> {
        self.by_id.get(self.owners.get(&tgid)?).cloned()
    }

    /// The engine with this id.
    pub fn get(&self, id: &str) -> Option<Arc<EngineInfo>> {
        self.by_id.get(id).cloned()
    }

    /// An engine was found, or more is known of it. `false` when the bounds leave no room for all of it.
    pub fn up(&mut self, engine: Arc<EngineInfo>) -> bool {
        self.epoch += 1;
        if let Some(before) = self.by_id.get(&engine.id) {
            // Forked processes that discovery has not seen yet stay; those that it no longer lists go.
            for pid in before.pids.iter().filter(|pid| !engine.pids.contains(pid)) {
                self.owners.remove(pid);
            }
        } else if self.by_id.len() >= MAX_ENGINES {
            return false;
        }
        let mut room = true;
        for pid in engine.pids.iter().chain([&engine.pid]) {
            if self.owners.len() < MAX_PROCESSES || self.owners.contains_key(pid) {
                self.owners.insert(*pid, engine.id.clone());
            } else {
                room = false;
            }
        }
        self.by_id.insert(engine.id.clone(), engine);
        room
    }

    /// An engine is gone.
    pub fn down(&mut self, id: &str) {
        self.epoch += 1;
        self.by_id.remove(id);
        self.owners.retain(|_, engine| **engine != *id);
    }

    /// Processes of an engine, ascending.
    pub fn tgids(&self, id: &str) -> Vec<u32> {
        let mut tgids: Vec<u32> = self
            .owners
            .iter()
            .filter(|(_, e)| ***e == *id)
            .map(|(tgid, _)| *tgid)
            .collect();
        tgids.sort_unstable();
        tgids
    }

    /// A process of an engine has a child, which serves with it. `false` when the bounds leave no room.
    pub fn fork(&mut self, parent: u32, child: u32) -> bool {
        let Some(engine) = self.owners.get(&parent).cloned() else {
            return true;
        };
        if self.owners.len() >= MAX_PROCESSES && !self.owners.contains_key(&child) {
            return false;
        }
        self.owners.insert(child, engine);
        self.epoch += 1;
        true
    }

    /// A process ended.
    pub fn exit(&mut self, tgid: u32) {
        if self.owners.remove(&tgid).is_some() {
            self.epoch += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EngineKind;

    fn engine(id: &str, pids: &[u32], model: Option<&str>) -> Arc<EngineInfo> {
        Arc::new(EngineInfo {
            id: id.into(),
            kind: EngineKind::Vllm,
            model: model.map(Into::into),
            version: None,
            pid: pids[0],
            pids: pids.to_vec(),
            ports: vec![8000],
            container: None,
            pod_uid: None,
        })
    }

    fn id_of(engines: &Engines, tgid: u32) -> Option<String> {
        engines.of(tgid).map(|e| e.id.to_string())
    }

    #[test]
    fn processes_follow_their_engine() {
        let mut engines = Engines::default();
        assert!(engines.up(engine("a", &[1, 2], None)));
        assert!(engines.up(engine("b", &[5], None)));
        assert!(engines.fork(2, 3));
        assert!(engines.fork(99, 100), "a stranger's child is nobody's");
        assert_eq!(id_of(&engines, 3).as_deref(), Some("a"));
        assert_eq!(id_of(&engines, 100), None);
        let epoch = engines.epoch();
        assert!(engines.up(engine("a", &[1, 4], Some("m"))));
        assert!(engines.epoch() > epoch);
        assert_eq!(
            engines.tgids("a"),
            [1, 3, 4],
            "2 is no longer listed, 3 was never"
        );
        engines.exit(4);
        assert_eq!(id_of(&engines, 4), None);
        engines.down("a");
        assert_eq!(
            (id_of(&engines, 1), id_of(&engines, 5).as_deref()),
            (None, Some("b"))
        );
    }

    #[test]
    fn the_map_is_bounded() {
        let mut engines = Engines::default();
        assert!(engines.up(engine("a", &[1], None)));
        let grown = (2..100_000).filter(|child| engines.fork(1, *child)).count();
        assert_eq!(grown, MAX_PROCESSES - 1);
    }
}
