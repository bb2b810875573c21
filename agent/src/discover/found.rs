//! What discovery finds, and how two findings differ.
//!
//! Owns: the shapes that the rest of the agent sees. Refuses: finding.

use infertap_core::EngineInfo;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a process does in its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// It takes requests from clients.
    Server,
    /// It computes for the server: what is said on its sockets is the engine's own business, not a client's request.
    Worker,
    /// A descendant that no rule knows.
    Helper,
}

/// One process of an engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundProcess {
    /// Process id.
    pub pid: u32,
    /// What it does in the engine.
    pub part: Part,
    /// The kernel's 15 bytes of name.
    pub comm: String,
    /// Why it belongs to the engine: a rule's name, a flag, or its descent.
    pub why: String,
}

/// One engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundEngine {
    /// What the core is told.
    pub info: Arc<EngineInfo>,
    /// The process that all others descend from.
    pub root: u32,
    /// When the root started, in clock ticks after boot.
    pub started: u64,
    /// Every process, by id.
    pub processes: Vec<FoundProcess>,
    /// What stands in the way, for the operator.
    pub notes: Vec<String>,
}

impl FoundEngine {
    /// The processes that take requests from clients.
    pub fn servers(&self) -> impl Iterator<Item = u32> {
        self.processes
            .iter()
            .filter(|process| process.part == Part::Server)
            .map(|process| process.pid)
    }
}

/// Something that the operator asked for and that was not found, or could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{0}")]
pub struct ScanProblem(pub String);

/// One look at the process table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scan {
    /// The engines, by id.
    pub engines: Vec<FoundEngine>,
    /// What could not be found or looked at.
    pub problems: Vec<ScanProblem>,
    /// Processes seen.
    pub processes: usize,
}

/// How an engine changed between two looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It is gone. A server that was restarted between two looks is down, then up.
    Down(Arc<str>),
    /// It is new.
    Up(FoundEngine),
    /// More is known of it, or its processes are others.
    Changed(FoundEngine),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Down(id) => write!(f, "{id} is gone"),
            Change::Up(engine) => write!(f, "{} is here (pid {})", engine.info.id, engine.info.pid),
            Change::Changed(engine) => write!(f, "{} changed", engine.info.id),
        }
    }
}

/// What happened between two looks; those that went come first, so that an id is free before it is taken again.
pub fn diff(old: &[FoundEngine], new: &[FoundEngine]) -> Vec<Change> {
    let index = |engines: &[FoundEngine]| -> BTreeMap<Arc<str>, usize> {
        engines
            .iter()
            .enumerate()
            .map(|(at, engine)| (Arc::clone(&engine.info.id), at))
            .collect()
    };
    let (before, after) = (index(old), index(new));
    let same = |a: &FoundEngine, b: &FoundEngine| (a.root, a.started) == (b.root, b.started);
    let mut changes: Vec<Change> = before
        .iter()
        .filter(|(id, at)| after.get(*id).is_none_or(|now| !same(&old[**at], &new[*now])))
        .map(|(id, _)| Change::Down(Arc::clone(id)))
        .collect();
    for (id, at) in &after {
        let engine = &new[*at];
        match before.get(id).map(|at| &old[*at]).filter(|was| same(was, engine)) {
            None => changes.push(Change::Up(engine.clone())),
            Some(was) if was.info != engine.info || was.processes != engine.processes => {
                changes.push(Change::Changed(engine.clone()));
            }
            Some(_) => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use infertap_core::EngineKind;

    fn engine(id: &str, root: u32, started: u64, pids: &[u32]) -> FoundEngine {
        FoundEngine {
            info: Arc::new(EngineInfo {
                id: id.into(),
                kind: EngineKind::Vllm,
                model: None,
                version: None,
                pid: root,
                pids: pids.to_vec(),
                ports: vec![8000],
                container: None,
                pod_uid: None,
            }),
            root,
            started,
            processes: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn what_came_went_and_changed() {
        let old = [
            engine("a", 1, 1, &[1]),
            engine("b", 2, 1, &[2]),
            engine("c", 3, 1, &[3]),
            engine("d", 4, 1, &[4]),
        ];
        let new = [
            engine("a", 1, 1, &[1]),
            engine("b", 2, 1, &[2, 9]),
            engine("c", 3, 7, &[3]),
            engine("e", 5, 1, &[5]),
        ];
        let changes: Vec<_> = diff(&old, &new).iter().map(ToString::to_string).collect();
        assert_eq!(
            changes,
            [
                "c is gone",
                "d is gone",
                "b changed",
                "c is here (pid 3)",
                "e is here (pid 5)"
            ]
        );
        assert!(diff(&new, &new).is_empty());
    }
}
