//! The scanner: one look at the process table after another, with what is known kept in between.
//!
//! Owns: the order of a look, and the marks that rules and the operator's wishes give. Refuses: the rules themselves,
//! grouping, ports and details, each in its own file.

use super::assemble::KnownEngine;
use super::config::{DiscoverConfig, RuleConfig};
use super::found::{Scan, ScanProblem};
use super::group::{Mark, Node, group};
use super::host::{Host, Stat};
use super::listeners::Listeners;
use super::named::NamedPorts;
use super::process::{Examined, Look, tick_hz};
use super::rules::{first_match, rules};
use infertap_core::EngineKind;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

/// Seconds before a kernel thread's id is looked at again: large hosts have more of them than of processes.
const KERNEL_THREAD_INTERVAL: f64 = 10.0;

/// What a scanner needs to know.
#[derive(Debug, Clone)]
pub struct ScannerConfig {
    /// Where procfs is.
    pub root: PathBuf,
    /// What is looked for.
    pub discover: DiscoverConfig,
    /// A process that never is an engine: the agent itself.
    pub exclude: Option<u32>,
}

impl ScannerConfig {
    /// For this host's `/proc`.
    pub fn new(discover: DiscoverConfig) -> ScannerConfig {
        ScannerConfig {
            root: PathBuf::from("/proc"),
            discover,
            exclude: Some(std::process::id()),
        }
    }
}

/// Finds engines. Call [`Scanner::scan`] about once a second: a look reads one small file a process, and more only of
/// processes that are new, that changed their name, or that are due.
#[derive(Debug)]
pub struct Scanner {
    pub(super) host: Host,
    pub(super) config: DiscoverConfig,
    exclude: Option<u32>,
    rules: Vec<RuleConfig>,
    pub(super) known: HashMap<u32, Examined>,
    pub(super) engines: HashMap<(u32, u64), KnownEngine>,
    pub(super) named_ports: NamedPorts,
    /// Kernel threads, and when each is looked at again: a process may get its id one day.
    kernel_threads: HashMap<u32, f64>,
}

impl Scanner {
    /// A scanner that has seen nothing yet.
    pub fn new(config: ScannerConfig) -> Scanner {
        Scanner {
            host: Host::new(config.root),
            rules: rules(
                &config.discover.rule,
                config.discover.builtin_rules,
                config.discover.gateways,
            ),
            config: config.discover,
            exclude: config.exclude,
            known: HashMap::new(),
            engines: HashMap::new(),
            named_ports: NamedPorts::default(),
            kernel_threads: HashMap::new(),
        }
    }

    /// The procfs that is read.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Forgets what is known of a process, so that the next look examines it anew: it executed another program, say.
    pub fn touch(&mut self, pid: u32) {
        self.known.remove(&pid);
    }

    /// Looks at the process table.
    pub fn scan(&mut self) -> Scan {
        let mut scan = Scan::default();
        let pids = match self.host.pids() {
            Ok(pids) => pids,
            Err(error) => {
                let root = self.host.root().display();
                scan.problems.push(ScanProblem(format!(
                    "{root} can't be listed: {error}; is it a procfs?"
                )));
                return scan;
            }
        };
        let host = self.host.clone();
        let look = Look {
            host: &host,
            now: self.host.uptime().unwrap_or(0.0),
            tick_hz: tick_hz(),
        };
        let mut listeners = Listeners::default();
        let mut stats: BTreeMap<u32, Stat> = BTreeMap::new();
        self.kernel_threads.retain(|_, due| *due > look.now);
        for pid in pids {
            if Some(pid) == self.exclude || self.kernel_threads.contains_key(&pid) {
                continue;
            }
            let Ok(stat) = self.host.stat(pid) else { continue };
            if stat.is_kernel_thread() {
                self.kernel_threads.insert(pid, look.now + KERNEL_THREAD_INTERVAL);
            } else if !stat.is_dead() {
                stats.insert(pid, stat);
            }
        }
        scan.processes = stats.len();
        self.known
            .retain(|pid, known| stats.get(pid).is_some_and(|stat| stat.starttime == known.start));
        for (&pid, stat) in &stats {
            let known = self.known.entry(pid).or_insert_with(|| Examined::new(stat));
            known.refresh(&look, pid, stat, &mut listeners, |evidence| {
                first_match(&self.rules, evidence).cloned()
            });
        }
        let explicit = self.explicit(&look, &stats, &mut listeners, &mut scan.problems);
        let nodes = stats
            .iter()
            .map(|(&pid, stat)| (pid, self.node(pid, stat, explicit.get(&pid))))
            .collect();
        let groups = group(&nodes);
        self.make_engines(&look, &stats, groups, &mut listeners, &mut scan);
        self.tell_denied(&mut scan);
        scan
    }

    fn node(&self, pid: u32, stat: &Stat, named: Option<&String>) -> Node {
        let known = self.known.get(&pid);
        let rule = known.and_then(|known| known.rule.as_ref());
        // A gateway that the operator names is to be watched as an engine: those behind it may be elsewhere.
        let rule = rule.filter(|rule| rule.kind != EngineKind::Gateway || named.is_none());
        let mark = match (rule, named) {
            (Some(rule), _) => Some(Mark {
                why: format!("rule {}", rule.name),
                kind: rule.kind,
                member: rule.member,
                explicit_only: false,
            }),
            (None, Some(why)) => Some(Mark {
                why: why.clone(),
                kind: EngineKind::Generic,
                member: false,
                explicit_only: true,
            }),
            (None, None) => None,
        };
        Node {
            ppid: stat.ppid,
            comm: stat.comm.clone(),
            exe: known.and_then(|known| known.exe.clone()),
            mark,
        }
    }

    fn tell_denied(&self, scan: &mut Scan) {
        if self.known.values().any(|known| known.denied) {
            scan.problems.push(ScanProblem(
                "processes of others can't be looked into (permission denied): engines that show only by their sockets or \
                 libraries are not found; run as root, or with CAP_SYS_PTRACE"
                    .to_owned(),
            ));
        }
    }
}
