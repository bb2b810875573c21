//! Which processes are one engine: a server, its workers, and what descends from them.
//!
//! Owns: grouping by descent, as a pure function of a process table. Refuses: reading procfs, ports and names.

use super::found::{FoundProcess, Part};
use infertap_core::EngineKind;
use std::collections::{BTreeMap, BTreeSet};

/// Ancestors looked at; a table read while processes come and go may hold a circle.
const MAX_DEPTH: usize = 128;

/// Why a process is an engine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    /// The rule's name, or the flag.
    pub(super) why: String,
    /// What the engine is.
    pub(super) kind: EngineKind,
    /// It works for a server of the same kind.
    pub(super) member: bool,
    /// The operator named it, and no rule knows it.
    pub(super) explicit_only: bool,
}

/// One row of the process table.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    pub(super) ppid: u32,
    pub(super) comm: String,
    pub(super) exe: Option<String>,
    pub(super) mark: Option<Mark>,
}

/// One engine's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) root: u32,
    pub(super) kind: EngineKind,
    /// It is there only because the operator named it.
    pub(super) explicit_only: bool,
    /// By process id.
    pub(super) processes: Vec<FoundProcess>,
}

/// Groups a process table into engines, by the root's process id.
///
/// A marked process belongs to the engine of its nearest ancestor of the same kind, or begins one. A worker without
/// such an ancestor is embedded in the program that forked it, which becomes the root, unless that is a gateway: it started
/// the engines that it forwards to. Everything else that descends from an engine's process is its helper.
pub(super) fn group(nodes: &BTreeMap<u32, Node>) -> Vec<Group> {
    let mut roots: BTreeMap<u32, u32> = BTreeMap::new();
    let mut kinds: BTreeMap<u32, EngineKind> = BTreeMap::new();
    let mut adopted: BTreeSet<u32> = BTreeSet::new();
    for (&pid, node) in nodes {
        let Some(mark) = &node.mark else { continue };
        // The topmost of an unbroken line of marked ancestors of this kind, whatever stands between them.
        let mut top = pid;
        for ancestor in ancestors(nodes, pid) {
            let Some(other) = nodes.get(&ancestor).and_then(|node| node.mark.as_ref()) else {
                continue;
            };
            if other.kind == mark.kind || (mark.explicit_only && top == pid) {
                top = ancestor;
            } else if !other.explicit_only {
                break;
            }
        }
        let top_node = &nodes[&top];
        if top_node.mark.as_ref().is_some_and(|mark| mark.member) {
            // Its parent runs the same program: the worker was forked, not started by a shell or a supervisor.
            let embedding = ancestors(nodes, top).next().filter(|parent| {
                nodes.get(parent).is_some_and(|n| {
                    let gateway = n
                        .mark
                        .as_ref()
                        .is_some_and(|mark| mark.kind == EngineKind::Gateway);
                    !gateway && n.exe.is_some() && n.exe == top_node.exe
                })
            });
            if let Some(program) = embedding {
                adopted.insert(program);
                top = program;
            }
        }
        roots.insert(pid, top);
        kinds.entry(top).or_insert(mark.kind);
    }
    for &program in &adopted {
        roots.entry(program).or_insert(program);
    }

    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for (&pid, node) in nodes {
        let root = match roots.get(&pid) {
            Some(root) => *root,
            None => match ancestors(nodes, pid).find_map(|ancestor| roots.get(&ancestor)) {
                Some(root) => *root,
                None => continue,
            },
        };
        // A mark may have been adopted by a root that is itself inside another group.
        let root = *roots.get(&root).unwrap_or(&root);
        let (part, why) = match &node.mark {
            Some(mark) if mark.member => (Part::Worker, mark.why.clone()),
            Some(mark) => (Part::Server, mark.why.clone()),
            None if adopted.contains(&pid) => (Part::Server, "runs a worker".to_owned()),
            None => (Part::Helper, format!("descends from {root}")),
        };
        let group = groups.entry(root).or_insert_with(|| Group {
            root,
            kind: kinds.get(&root).copied().unwrap_or(EngineKind::Generic),
            explicit_only: nodes
                .get(&root)
                .and_then(|n| n.mark.as_ref())
                .is_some_and(|mark| mark.explicit_only),
            processes: Vec::new(),
        });
        group.processes.push(FoundProcess {
            pid,
            part,
            comm: node.comm.clone(),
            why,
        });
    }
    groups.into_values().collect()
}

/// Ancestors, nearest first; ends at the first process, at one that is not in the table, and in a circle.
fn ancestors(nodes: &BTreeMap<u32, Node>, pid: u32) -> impl Iterator<Item = u32> {
    let parent = move |pid: &u32| {
        nodes
            .get(pid)
            .map(|node| node.ppid)
            .filter(|ppid| *ppid != 0 && nodes.contains_key(ppid))
    };
    std::iter::successors(parent(&pid), move |pid| parent(pid))
        .take(MAX_DEPTH)
        .take_while(move |ancestor| *ancestor != pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineKind::{Gateway, Generic, Ollama, Sglang, Vllm};
    use proptest::prelude::*;

    /// Process, parent, executable, and the mark: kind and "server", "member" or "explicit".
    type Row = (u32, u32, &'static str, Option<(EngineKind, &'static str)>);
    /// Root, kind, processes.
    type Shape = (u32, EngineKind, Vec<(u32, Part)>);

    fn table(rows: &[Row]) -> BTreeMap<u32, Node> {
        rows.iter()
            .map(|(pid, ppid, exe, mark)| {
                let mark = mark.map(|(kind, how)| Mark {
                    why: "rule".to_owned(),
                    kind,
                    member: how == "member",
                    explicit_only: how == "explicit",
                });
                (
                    *pid,
                    Node {
                        ppid: *ppid,
                        comm: (*exe).to_owned(),
                        exe: Some((*exe).to_owned()),
                        mark,
                    },
                )
            })
            .collect()
    }

    fn shape(rows: &[Row]) -> Vec<Shape> {
        group(&table(rows))
            .into_iter()
            .map(|g| {
                (
                    g.root,
                    g.kind,
                    g.processes.iter().map(|p| (p.pid, p.part)).collect(),
                )
            })
            .collect()
    }

    use Part::{Helper, Server, Worker};

    #[test]
    fn a_server_its_workers_and_helpers_are_one_engine() {
        let shape = shape(&[
            (1, 0, "init", None),
            (10, 1, "sh", None),
            (11, 10, "py", Some((Vllm, "server"))),
            (12, 11, "py", None),
            (13, 11, "py", Some((Vllm, "member"))),
            (14, 13, "py", Some((Vllm, "member"))),
            (15, 14, "py", None),
            (16, 11, "py", Some((Vllm, "server"))),
            (20, 1, "sh", None),
        ]);
        assert_eq!(
            shape,
            [(
                11,
                Vllm,
                vec![
                    (11, Server),
                    (12, Helper),
                    (13, Worker),
                    (14, Worker),
                    (15, Helper),
                    (16, Server)
                ]
            )]
        );
    }

    #[test]
    fn servers_side_by_side_are_several_engines() {
        let shape = shape(&[
            (1, 0, "init", None),
            (11, 1, "py", Some((Vllm, "server"))),
            (12, 1, "py", Some((Vllm, "server"))),
            (13, 12, "py", Some((Vllm, "member"))),
            (14, 1, "go", Some((Ollama, "server"))),
            (15, 14, "go", Some((Ollama, "member"))),
        ]);
        assert_eq!(
            shape,
            [
                (11, Vllm, vec![(11, Server)]),
                (12, Vllm, vec![(12, Server), (13, Worker)]),
                (14, Ollama, vec![(14, Server), (15, Worker)])
            ]
        );
    }

    #[test]
    fn a_worker_without_a_server_is_embedded_in_what_forked_it() {
        assert_eq!(
            shape(&[
                (1, 0, "init", None),
                (10, 1, "sh", None),
                (11, 10, "py", None),
                (12, 11, "py", Some((Vllm, "member"))),
                (13, 12, "py", Some((Vllm, "member"))),
                (14, 11, "py", None),
            ]),
            [(
                11,
                Vllm,
                vec![(11, Server), (12, Worker), (13, Worker), (14, Helper)]
            )]
        );
        assert_eq!(
            shape(&[(12, 1, "py", Some((Vllm, "member")))]),
            [(12, Vllm, vec![(12, Worker)])]
        );
    }

    #[test]
    fn engines_that_a_gateway_forked_are_engines_of_their_own() {
        assert_eq!(
            shape(&[
                (11, 1, "py", Some((Gateway, "server"))),
                (12, 11, "py", None),
                (13, 11, "py", Some((Sglang, "member"))),
                (14, 13, "py", Some((Sglang, "member"))),
                (15, 11, "py", Some((Sglang, "member"))),
                (16, 15, "py", None),
            ]),
            [
                (11, Gateway, vec![(11, Server), (12, Helper)]),
                (13, Sglang, vec![(13, Worker), (14, Worker)]),
                (15, Sglang, vec![(15, Worker), (16, Helper)])
            ]
        );
    }

    #[test]
    fn another_kind_below_a_named_process_is_its_own_engine() {
        assert_eq!(
            shape(&[
                (10, 1, "wrapper", Some((Generic, "explicit"))),
                (11, 10, "py", Some((Vllm, "server"))),
                (12, 11, "py", Some((Vllm, "member"))),
                (13, 10, "x", None),
            ]),
            [
                (10, Generic, vec![(10, Server), (13, Helper)]),
                (11, Vllm, vec![(11, Server), (12, Worker)])
            ]
        );
    }

    #[test]
    fn a_named_process_inside_an_engine_is_part_of_it() {
        assert_eq!(
            shape(&[
                (11, 1, "py", Some((Vllm, "server"))),
                (12, 11, "x", None),
                (13, 12, "x", Some((Generic, "explicit")))
            ]),
            [(11, Vllm, vec![(11, Server), (12, Helper), (13, Server)])]
        );
    }

    proptest! {
        #[test]
        fn any_table_gives_disjoint_groups(rows in proptest::collection::btree_map(0u32..40, (0u32..40, 0u8..5), 0..40)) {
            let nodes: BTreeMap<u32, Node> = rows.iter().map(|(pid, (ppid, what))| {
                let mark = (*what < 4).then(|| Mark {
                    why: String::new(),
                    kind: if what % 2 == 0 { Vllm } else { Generic },
                    member: *what == 2,
                    explicit_only: *what == 3,
                });
                (*pid, Node { ppid: *ppid, comm: String::new(), exe: Some("x".to_owned()), mark })
            }).collect();
            let mut seen = BTreeSet::new();
            for group in group(&nodes) {
                for process in group.processes {
                    prop_assert!(seen.insert(process.pid));
                }
            }
            for (pid, node) in &nodes {
                prop_assert!(node.mark.is_none() || seen.contains(pid));
            }
        }
    }
}
