//! Tables: what of a process's mappings becomes what the kernel side is told.

use super::library::distinct;
use super::symbols::{CUDA, CudaSpec};
use super::*;
use std::ops::Range;
use std::path::PathBuf;
use std::slice;

fn file(name: &str, code: &[Range<u64>]) -> MappedFile {
    MappedFile {
        path: PathBuf::new(),
        name: format!("/usr/lib/{name}"),
        device: "fe:00".to_owned(),
        inode: 1,
        deleted: false,
        code: code.to_vec(),
    }
}

fn spec(enter: &str) -> &'static CudaSpec {
    CUDA.iter()
        .find(|spec| spec.enter == enter)
        .expect("in the table")
}

#[test]
fn every_name_at_one_address_is_one_probe_and_stubs_are_none() {
    let (alloc, free, launch) = (spec("cuda_alloc"), spec("cuda_free"), spec("cuda_launch"));
    let found = [
        (launch, 0x100),
        (launch, 0x200),
        (launch, 0x100),
        (alloc, 0x300),
        (free, 0x300),
        (alloc, 0x300),
    ];
    assert_eq!(distinct(found.into_iter()), [(launch, 0x100), (launch, 0x200)]);
}

#[test]
fn several_copies_of_the_runtime_are_all_told() {
    let driver = file("libcuda.so.1", slice::from_ref(&(0x100..0x200)));
    let wheel = file("libcudart-1234.so.12", slice::from_ref(&(0x300..0x400)));
    let system = file("libcudart.so.12", &[0x500..0x600, 0x700..0x800]);
    let value = layout(
        &[
            (Side::Runtime, &wheel),
            (Side::Driver, &driver),
            (Side::Runtime, &system),
        ],
        CudaClass::Launch.bit(),
    );
    let starts = value.runtime.map(|range| range.begin);
    assert_eq!((value.runtimes, starts), (3, [0x300, 0x500, 0x700, 0, 0, 0]));
    assert_eq!(
        value.driver[0],
        CudaRange {
            begin: 0x100,
            end: 0x200
        }
    );
    assert_eq!(value.driver_only, CudaClass::Launch.bit());
}

#[test]
fn with_more_copies_than_there_is_room_for_the_driver_counts_alone() {
    let many: Vec<Range<u64>> = (0..7).map(|at| at * 0x1000..at * 0x1000 + 1).collect();
    let runtime = file("libcudart.so.12", &many);
    let value = layout(&[(Side::Runtime, &runtime)], 0);
    assert_eq!(
        (value.runtimes, value.runtime),
        (0, CudaProcess::default().runtime)
    );
}

#[test]
fn the_size_of_a_process_is_its_first_number() {
    assert!(pages(Path::new("/proc"), std::process::id()).expect("own size") > 0);
    assert_eq!(pages(Path::new("/proc"), u32::MAX), None);
}
