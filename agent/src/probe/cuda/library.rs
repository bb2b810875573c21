//! One library of CUDA's: which of its functions are probed, and where a process has its code.
//!
//! Owns: finding the functions, each address once, and attaching to those of one class. Refuses: when to (`cuda`).

use super::super::ProbeState;
use super::super::calls::attach_function;
use super::super::detach::Links;
use super::super::mapped::{MappedFile, executable_files};
use super::super::symbols::{SymbolError, Wanted, find};
use super::symbols::{CUDA, CudaSpec, Side};
use aya::Ebpf;
use infertap_abi::{CudaClass, CudaProcess, CudaRange};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Library {
    pub(super) side: Side,
    pub(super) path: PathBuf,
    /// With the places in the file where probes go.
    pub(super) found: Vec<(&'static CudaSpec, u64)>,
    /// By class.
    pub(super) links: BTreeMap<u32, Links>,
    pub(super) processes: BTreeSet<u32>,
}

impl Library {
    pub(super) fn of(side: Side, file: &MappedFile, pid: u32) -> Library {
        let mut library = Library {
            side,
            path: file.path.clone(),
            found: Vec::new(),
            links: BTreeMap::new(),
            processes: BTreeSet::from([pid]),
        };
        match functions(side, &file.path) {
            Ok(found) => library.found = found,
            Err(error) => {
                tracing::warn!(
                    "{}: its functions can't be looked up: {error}",
                    file.path.display()
                );
            }
        }
        tracing::debug!(
            "{}: {} functions of CUDA",
            file.path.display(),
            library.found.len()
        );
        library
    }

    pub(super) fn has_links(&self, class: CudaClass) -> bool {
        self.links
            .get(&(class as u32))
            .is_some_and(|links| !links.is_empty())
    }

    pub(super) fn attach(
        &self,
        ebpf: &mut Ebpf,
        class: CudaClass,
        refused: &mut BTreeSet<&'static str>,
        news: &mut Vec<ProbeState>,
    ) -> Links {
        let mut links = Links::new();
        for (spec, offset) in self.found.iter().filter(|(spec, _)| spec.class == class) {
            if refused.contains(spec.enter) {
                continue;
            }
            match attach_function(ebpf, spec.enter, spec.leave, &self.path, *offset) {
                Ok(more) => links.extend(more),
                // Its process has ended meanwhile: that says nothing about the program.
                Err(_) if !self.path.exists() => return links,
                Err(error) => {
                    refused.insert(spec.enter);
                    let state = ProbeState {
                        probe: spec.enter,
                        up: false,
                        detail: Some(error.to_string()),
                    };
                    news.push(state);
                }
            }
        }
        links
    }
}

/// Those functions of the library at `path` that are probed, and where.
fn functions(side: Side, path: &Path) -> Result<Vec<(&'static CudaSpec, u64)>, SymbolError> {
    let (names, specs): (Vec<Wanted>, Vec<&'static CudaSpec>) = CUDA
        .iter()
        .filter(|spec| spec.side == side)
        .flat_map(|spec| spec.symbols.iter().map(move |symbol| (Wanted::C(symbol), spec)))
        .unzip();
    let functions = find(path, &names)?;
    let places = functions.found.iter();
    Ok(distinct(places.filter_map(|found| {
        Some((*specs.get(found.wanted)?, found.place))
    })))
}

/// A library of CUDA's that a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedLibrary {
    /// The file, as the process has it.
    pub name: String,
    /// Its functions that would be probed, or why they can't be looked up.
    pub functions: Result<usize, String>,
}

/// CUDA's libraries that `pid` has mapped, without probing them; none where its mappings can't be read.
pub fn libraries(procfs: &Path, pid: u32) -> Vec<MappedLibrary> {
    let files = executable_files(procfs, pid).unwrap_or_default();
    let of_cuda = |file: MappedFile| {
        let side = Side::of(file.file_name())?;
        Some(MappedLibrary {
            functions: functions(side, &file.path)
                .map(|found| found.len())
                .map_err(|error| error.to_string()),
            name: file.name,
        })
    };
    files.into_iter().filter_map(of_cuda).collect()
}

/// Each address once, however many names it has. One that functions of different shapes share tells nothing: those are
/// stubs.
pub(super) fn distinct(
    found: impl Iterator<Item = (&'static CudaSpec, u64)>,
) -> Vec<(&'static CudaSpec, u64)> {
    let mut places: BTreeMap<u64, Option<&'static CudaSpec>> = BTreeMap::new();
    for (spec, offset) in found {
        places
            .entry(offset)
            .and_modify(|known| *known = known.filter(|known| **known == *spec))
            .or_insert(Some(spec));
    }
    places
        .into_iter()
        .filter_map(|(offset, spec)| Some((spec?, offset)))
        .collect()
}

/// What the kernel side needs to know of a process. With more copies of the runtime than there is room for, the driver
/// counts alone.
pub(super) fn layout(libraries: &[(Side, &MappedFile)], driver_only: u32) -> CudaProcess {
    let of = |side| {
        let code = libraries.iter().filter(move |(of, _)| *of == side);
        code.flat_map(|(_, file)| file.code.iter().map(range))
            .collect::<Vec<_>>()
    };
    let (driver, runtime) = (of(Side::Driver), of(Side::Runtime));
    let mut value = CudaProcess {
        driver_only,
        ..CudaProcess::default()
    };
    for (slot, range) in value.driver.iter_mut().zip(driver) {
        *slot = range;
    }
    if runtime.len() > value.runtime.len() {
        return value;
    }
    value.runtimes = u32::try_from(runtime.len()).unwrap_or(0);
    for (slot, range) in value.runtime.iter_mut().zip(runtime) {
        *slot = range;
    }
    value
}

fn range(range: &Range<u64>) -> CudaRange {
    CudaRange {
        begin: range.start,
        end: range.end,
    }
}
