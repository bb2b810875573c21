//! Functions of watched processes: found in the files that they have mapped, attached once a file, detached with the
//! last process that has it.
//!
//! Owns: which files are attached to, for whom, and what failed. Refuses: the names of functions (`functions`), ELF
//! (`symbols`). Nothing here is fatal: a function that can't be probed is told and the rest goes on.

use super::attach::{CALLS, CallSpec};
use super::detach::{Closing, Links, detach};
use super::functions::{ASPECTS, FUNCTIONS};
use super::loader::{load_uprobe, uprobe};
use super::mapped::{MappedFile, executable_files};
use super::symbols::{self, Wanted};
use super::{ProbeError, ProbeState};
use aya::Ebpf;
use aya::programs::uprobe::UProbeScope;
use infertap_abi::Function;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Copies of one function in one file (overloads, instances of a template) that are attached to.
const MAX_COPIES: usize = 16;
/// Files that are attached to at once; an engine has a few.
const MAX_FILES: usize = 1024;
/// How long until a process's mappings are read again, because it may load more. Doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_mins(1);

/// Device and inode.
pub(super) type Identity = (String, u64);

/// What is attached.
#[derive(Debug, Default)]
pub(super) struct Calls {
    files: HashMap<Identity, Attached>,
    /// Files whose links are being closed: they are attached to again only then.
    closing: HashMap<Identity, Closing>,
    processes: BTreeMap<u32, Look>,
    /// Programs that the kernel refused to load or to attach: tried once.
    refused: BTreeSet<&'static str>,
    /// Programs that were told to be up.
    told_up: BTreeSet<&'static str>,
    news: Vec<ProbeState>,
}

#[derive(Debug, Default)]
struct Attached {
    links: Links,
    /// Numbers of the functions that it has and that are probed.
    functions: BTreeSet<u32>,
    processes: BTreeSet<u32>,
}

#[derive(Debug)]
struct Look {
    due: Instant,
    pause: Duration,
    /// No file of it still waits for old links to be closed.
    whole: bool,
}

impl Calls {
    /// Looks into what `pid` has mapped now, and attaches to what is new. Where its mappings can't be read, what is
    /// attached stays.
    pub(super) fn look(&mut self, ebpf: &mut Ebpf, procfs: &Path, pid: u32, now: Instant) {
        let pause = self
            .processes
            .get(&pid)
            .map_or(FIRST_PAUSE, |look| (look.pause * 2).min(LAST_PAUSE));
        let look = Look {
            due: now + pause,
            pause,
            whole: true,
        };
        self.processes.insert(pid, look);
        self.closing.retain(|_, closing| !closing.is_over());
        let executable = fs::read_link(procfs.join(pid.to_string()).join("exe")).unwrap_or_default();
        let Ok(files) = executable_files(procfs, pid) else {
            return;
        };
        let mut deferred = false;
        for file in files {
            if !may_have_functions(file.file_name()) && Path::new(&file.name) != executable {
                continue;
            }
            let identity = (file.device.clone(), file.inode);
            if let Some(attached) = self.files.get_mut(&identity) {
                attached.processes.insert(pid);
            } else if self.closing.contains_key(&identity) {
                deferred = true;
            } else if self.files.len() < MAX_FILES {
                let mut attached = self.attach(ebpf, &file);
                attached.processes.insert(pid);
                self.files.insert(identity, attached);
            }
        }
        if deferred && let Some(look) = self.processes.get_mut(&pid) {
            look.due = now + FIRST_PAUSE;
            // What it loads from then on is looked for as in a process that has just come.
            look.pause = FIRST_PAUSE;
            look.whole = false;
        }
    }

    /// Processes whose mappings are to be read again by now.
    pub(super) fn due(&self, now: Instant) -> Vec<u32> {
        let due = self.processes.iter().filter(|(_, look)| look.due <= now);
        due.map(|(pid, _)| *pid).collect()
    }

    /// A process has ended, or is watched no longer.
    pub(super) fn forget(&mut self, ebpf: &mut Ebpf, pid: u32) {
        if self.processes.remove(&pid).is_none() {
            return;
        }
        let mut over = Links::new();
        let mut files = Vec::new();
        self.files.retain(|identity, attached| {
            if attached.processes.remove(&pid) && attached.processes.is_empty() {
                over.append(&mut attached.links);
                files.push(identity.clone());
                return false;
            }
            true
        });
        let closing = detach(ebpf, over);
        if !closing.is_over() {
            self.closing
                .extend(files.into_iter().map(|identity| (identity, closing.clone())));
        }
    }

    /// Numbers of the functions that are probed in what `pid` has mapped; `None` until all of that was looked at.
    pub(super) fn functions_of(&self, pid: u32) -> Option<BTreeSet<u32>> {
        self.processes.get(&pid).filter(|look| look.whole)?;
        let of_process = self
            .files
            .values()
            .filter(|attached| attached.processes.contains(&pid));
        Some(
            of_process
                .flat_map(|attached| attached.functions.iter().copied())
                .collect(),
        )
    }

    /// What became known of probes since this was last asked.
    pub(super) fn take_news(&mut self) -> Vec<ProbeState> {
        std::mem::take(&mut self.news)
    }

    fn attach(&mut self, ebpf: &mut Ebpf, file: &MappedFile) -> Attached {
        let mut attached = Attached::default();
        let (names, owners): (Vec<Wanted>, Vec<Function>) = FUNCTIONS
            .iter()
            .flat_map(|spec| spec.names.iter().map(|name| (*name, spec.function)))
            .unzip();
        let functions = match symbols::find(&file.path, &names) {
            Ok(functions) => functions,
            Err(error) => {
                tracing::warn!(
                    "{}: its functions can't be looked up: {error}",
                    file.path.display()
                );
                return attached;
            }
        };
        let mut copies: HashMap<&'static str, usize> = HashMap::new();
        for found in &functions.found {
            let Some(spec) = owners.get(found.wanted).and_then(|function| spec_of(*function)) else {
                continue;
            };
            if is_fragment(&found.symbol) || self.refused.contains(spec.enter) {
                continue;
            }
            let copies = copies.entry(spec.enter).or_default();
            *copies += 1;
            if *copies > MAX_COPIES {
                continue;
            }
            match attach_function(ebpf, spec.enter, spec.leave, &file.path, found.place) {
                Ok(links) => {
                    attached.links.extend(links);
                    attached.functions.insert(spec.function as u32);
                    if self.told_up.insert(spec.enter) {
                        self.tell(spec.enter, true, format!("first in {}", file.path.display()));
                    }
                }
                // The process has ended meanwhile: that says nothing about the program.
                Err(_) if !file.path.exists() => break,
                Err(error) => {
                    self.refused.insert(spec.enter);
                    self.tell(spec.enter, false, error.to_string());
                }
            }
        }
        tracing::debug!(
            "{}: {} functions probed{}",
            file.path.display(),
            attached.functions.len(),
            if functions.stripped {
                "; it is stripped"
            } else {
                ""
            }
        );
        attached
    }

    fn tell(&mut self, probe: &'static str, up: bool, detail: String) {
        self.news.push(ProbeState {
            probe,
            up,
            detail: Some(detail),
        });
    }
}

fn may_have_functions(name: &str) -> bool {
    FUNCTIONS
        .iter()
        .any(|spec| spec.files.iter().any(|part| name.contains(part)))
}

fn spec_of(function: Function) -> Option<&'static CallSpec> {
    CALLS.iter().find(|spec| spec.function == function)
}

/// Each aspect that calls can cover of an engine, and whether the functions with these numbers do.
pub(super) fn covered_by(has: &BTreeSet<u32>) -> Vec<(&'static str, bool)> {
    let one_of = |any: &&[Function]| any.iter().any(|function| has.contains(&(*function as u32)));
    ASPECTS
        .iter()
        .map(|(aspect, all)| (*aspect, all.iter().all(&one_of)))
        .collect()
}

/// A part of a function that the compiler has moved elsewhere: no call enters it.
fn is_fragment(symbol: &str) -> bool {
    symbol.contains(".cold") || symbol.contains(".part.")
}

/// The return first: a call that is entered between the two must find its return probed.
pub(super) fn attach_function(
    ebpf: &mut Ebpf,
    enter: &'static str,
    leave: Option<&'static str>,
    path: &Path,
    offset: u64,
) -> Result<Links, ProbeError> {
    let mut links = Vec::new();
    for program in leave.into_iter().chain([enter]) {
        let link = load_uprobe(ebpf, program).and_then(|()| {
            uprobe(ebpf, program)?
                .attach(offset, path, UProbeScope::AllProcesses)
                .map_err(|source| ProbeError::Attach {
                    program,
                    target: format!("offset {offset:#x} of {}", path.display()),
                    source: Box::new(source),
                })
        });
        match link {
            Ok(link) => links.push((program, link)),
            Err(error) => {
                detach(ebpf, links);
                return Err(error);
            }
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moved_parts_of_functions_are_not_entered_by_calls() {
        assert!(is_fragment("_ZN12server_queue5deferEO11server_task.cold"));
        assert!(is_fragment("_ZN12server_queue5deferEO11server_task.part.0"));
        assert!(!is_fragment("_ZN12server_queue5deferEO11server_task"));
    }

    #[test]
    fn every_function_that_is_looked_for_has_a_program_and_names() {
        let mut seen = BTreeSet::new();
        for spec in FUNCTIONS {
            assert!(seen.insert(spec.function as u32), "{:?} twice", spec.function);
            assert!(spec_of(spec.function).is_some(), "{:?}", spec.function);
            assert!(!spec.names.is_empty() && !spec.files.is_empty());
        }
    }

    #[test]
    fn an_aspect_is_covered_by_all_that_it_needs() {
        let covered = |functions: &[Function]| -> Vec<&str> {
            let has = functions.iter().map(|function| *function as u32).collect();
            covered_by(&has)
                .into_iter()
                .filter_map(|(aspect, covered)| covered.then_some(aspect))
                .collect()
        };
        assert_eq!(covered(&[]), [""; 0]);
        assert_eq!(covered(&[Function::LlamaDecode]), ["steps"]);
        assert_eq!(
            covered(&[Function::LlamaProcess, Function::LlamaTokenize]),
            ["steps", "tokenizer_calls"]
        );
        let slots = [
            Function::LlamaTaskId,
            Function::LlamaSlotLaunch,
            Function::LlamaSlotToken,
            Function::LlamaSlotRelease,
        ];
        assert_eq!(covered(&slots), ["slots"]);
        assert_eq!(covered(&slots[1..]), [""; 0]);
    }
}
