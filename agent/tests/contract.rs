//! The committed BPF object and the loader agree: its programs and maps are the ones that the loader names, and the
//! layouts of its map values are the ABI's. Needs no kernel; `cargo xtask ebpf --check` proves that the object is what
//! the source builds to.

use aya_obj::{Object, ProgramSection};
use infertap::probe::cuda::symbols::CUDA;
use infertap::probe::{OBJECT, attach};
use infertap_abi::{
    CallFrames, CallKey, Conn, CudaCount, CudaKey, CudaPointer, CudaProcess, CudaWork, DropReason, FdKey,
    Target,
};
use std::collections::BTreeSet;

fn object() -> Object {
    Object::parse(OBJECT).expect("the committed object parses")
}

/// Names of the object's programs of one kind.
fn programs(kind: fn(&ProgramSection) -> bool) -> BTreeSet<String> {
    object()
        .programs
        .into_iter()
        .filter(|(_, program)| kind(&program.section))
        .map(|(name, _)| name)
        .collect()
}

fn names<'a>(named: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    named.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_tracepoint_program_is_attached_and_every_attached_one_exists() {
    let named = attach::SOCKET_TRACEPOINTS
        .iter()
        .chain(attach::PROCESS_TRACEPOINTS)
        .chain(attach::ARRIVAL_TRACEPOINTS)
        .map(|spec| spec.program);
    assert_eq!(
        programs(|s| matches!(s, ProgramSection::TracePoint)),
        names(named)
    );
}

#[test]
fn every_uprobe_program_is_attached_and_every_attached_one_exists() {
    let calls = attach::CALLS.iter();
    let entries = attach::SOCKET_LIBC
        .iter()
        .map(|spec| spec.program)
        .chain(calls.clone().map(|spec| spec.enter))
        .chain(CUDA.iter().map(|spec| spec.enter));
    assert_eq!(
        programs(|s| matches!(s, ProgramSection::UProbe { .. })),
        names(entries)
    );
    let exits = attach::SOCKET_LIBC
        .iter()
        .filter_map(|spec| spec.exit)
        .chain(calls.filter_map(|spec| spec.leave))
        .chain(CUDA.iter().filter_map(|spec| spec.leave));
    assert_eq!(
        programs(|s| matches!(s, ProgramSection::URetProbe { .. })),
        names(exits)
    );
}

#[test]
fn every_system_call_that_has_an_exit_program_has_an_entry_program() {
    let calls = |prefix: &'static str| -> BTreeSet<&str> {
        attach::SOCKET_TRACEPOINTS
            .iter()
            .filter_map(|spec| spec.name.strip_prefix(prefix))
            .collect()
    };
    let (entries, exits) = (calls("sys_enter_"), calls("sys_exit_"));
    assert_eq!(
        exits.difference(&entries).collect::<Vec<_>>(),
        Vec::<&&str>::new()
    );
    // These act at entry alone.
    let alone: Vec<_> = entries.difference(&exits).copied().collect();
    assert_eq!(alone, ["close", "connect", "shutdown"]);
}

#[test]
fn the_maps_are_the_named_ones_with_the_abi_s_layouts() {
    let object = object();
    let found: BTreeSet<String> = object
        .maps
        .keys()
        .filter(|name| !name.starts_with('.'))
        .cloned()
        .collect();
    assert_eq!(found, names(attach::MAPS.iter().copied()));
    let layout = |name: &str| {
        let map = &object.maps[name];
        (map.key_size() as usize, map.value_size() as usize)
    };
    assert_eq!(layout("TARGETS"), (4, size_of::<Target>()));
    assert_eq!(layout("FDS"), (size_of::<FdKey>(), 8));
    assert_eq!(layout("CONNS"), (8, size_of::<Conn>()));
    assert_eq!(layout("DROPS"), (4, 8));
    assert_eq!(layout("FRAMES"), (size_of::<CallKey>(), size_of::<CallFrames>()));
    assert_eq!(layout("CUDA_PROCESSES"), (4, size_of::<CudaProcess>()));
    assert_eq!(layout("CUDA_WORK"), (4, size_of::<CudaWork>()));
    assert_eq!(
        layout("CUDA_COUNTS"),
        (size_of::<CudaKey>(), size_of::<CudaCount>())
    );
    assert_eq!(layout("CUDA_ALLOCS"), (size_of::<CudaPointer>(), 8));
    assert_eq!(object.maps["DROPS"].max_entries() as usize, DropReason::ALL.len());
}

#[test]
fn the_object_is_licensed_for_the_helpers_that_it_calls() {
    assert_eq!(object().license.to_str(), Ok("Dual MIT/GPL"));
}
