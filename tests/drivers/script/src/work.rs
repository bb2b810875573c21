//! When the stand-in CUDA driver's devices work: the file that its library writes and that of NVML reads.
//!
//! Owns: the file's format: pairs of little-endian 64-bit CLOCK_MONOTONIC nanoseconds, begin and end. Refuses: writing it.

use crate::Work;
use std::{fs, io, path::Path};

/// Environment variable that names the folder in which the stand-in CUDA driver writes one such file a device:
/// `device-0`, `device-1`, …
pub const WORK_VARIABLE: &str = "INFERTAP_STAND_IN_WORK";

/// Reads a device's work in seconds from `start_ns`; none when there is no such file yet. A pair that is being written is
/// left out.
pub fn read_work(path: &Path, start_ns: u64) -> io::Result<Work> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Work::default()),
        other => other?,
    };
    let second = |word: &[u8; 8]| (u64::from_le_bytes(*word) as f64 - start_ns as f64) / 1e9;
    let (pairs, _) = bytes.as_chunks::<16>();
    let intervals = pairs.iter().filter_map(|pair| {
        let (words, _) = pair.as_chunks::<8>();
        Some((second(words.first()?), second(words.get(1)?)))
    });
    Ok(Work::new(intervals.collect()))
}
