//! A simulated device: memory that is counted, streams whose work takes time.
//!
//! Owns: when work begins and ends, what is allocated, the record of work. Refuses: waiting (callers do, unlocked).

use crate::state::Error;
use std::{collections::HashMap, fs::File, os::unix::fs::FileExt, path::PathBuf};

/// CLOCK_MONOTONIC, nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid timespec for the call to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Sleeps until CLOCK_MONOTONIC reads `deadline_ns`.
pub(crate) fn sleep_until(deadline_ns: u64) {
    let deadline = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    while monotonic_ns() < deadline_ns {
        // SAFETY: `deadline` is a valid timespec; no remainder is asked for with an absolute time.
        unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const deadline,
                std::ptr::null_mut(),
            );
        }
    }
}

/// A device.
pub(crate) struct Device {
    pub(crate) total: u64,
    pub(crate) used: u64,
    /// Where the next allocation is.
    next: u64,
    /// Allocations and physical memory by address or handle: bytes.
    sizes: HashMap<u64, u64>,
    /// When each stream's work ends.
    ends: HashMap<u64, u64>,
    record: Option<Record>,
}

/// The file of when it worked.
struct Record {
    file: File,
    length: u64,
    /// The last pair.
    last: (u64, u64),
}

impl Device {
    pub(crate) fn new(number: u32, total: u64, record: Option<PathBuf>) -> Device {
        let file = record.map(|path| {
            File::create(&path).unwrap_or_else(|error| {
                eprintln!("stand-in CUDA: can't write {}: {error}", path.display());
                std::process::abort();
            })
        });
        Device {
            total,
            used: 0,
            next: 0x7000_0000_0000 + (u64::from(number) << 40),
            sizes: HashMap::new(),
            ends: HashMap::from([(0, 0)]),
            record: file.map(|file| Record {
                file,
                length: 0,
                last: (0, 0),
            }),
        }
    }

    /// Takes memory; its address or handle.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<u64, Error> {
        if bytes == 0 {
            return Err(Error::InvalidValue);
        }
        if bytes > self.total - self.used {
            return Err(Error::OutOfMemory);
        }
        self.used += bytes;
        let place = self.reserve(bytes);
        self.sizes.insert(place, bytes);
        Ok(place)
    }

    /// Addresses without memory.
    pub(crate) fn reserve(&mut self, bytes: u64) -> u64 {
        let place = self.next;
        self.next += bytes.next_multiple_of(512);
        place
    }

    /// Gives memory back.
    pub(crate) fn free(&mut self, place: u64) -> Result<(), Error> {
        self.used -= self.sizes.remove(&place).ok_or(Error::InvalidValue)?;
        Ok(())
    }

    pub(crate) fn has(&self, place: u64) -> bool {
        self.sizes.contains_key(&place)
    }

    pub(crate) fn has_stream(&self, number: u64) -> bool {
        self.ends.contains_key(&number)
    }

    pub(crate) fn add_stream(&mut self, number: u64) {
        self.ends.insert(number, 0);
    }

    pub(crate) fn remove_stream(&mut self, number: u64) {
        self.ends.remove(&number);
    }

    /// Puts work behind what the stream has.
    pub(crate) fn put(&mut self, stream: u64, nanoseconds: u64) {
        if nanoseconds == 0 {
            return;
        }
        let end = self.ends.entry(stream).or_insert(0);
        let begin = monotonic_ns().max(*end);
        *end = begin + nanoseconds;
        let end = *end;
        if let Some(record) = &mut self.record {
            record.add(begin, end);
        }
    }

    /// Lets the stream wait until a time.
    pub(crate) fn delay(&mut self, stream: u64, until_ns: u64) {
        let end = self.ends.entry(stream).or_insert(0);
        *end = until_ns.max(*end);
    }

    /// When a stream's work ends; a time that is past if it has none.
    pub(crate) fn end_of(&self, stream: u64) -> u64 {
        self.ends.get(&stream).copied().unwrap_or(0)
    }

    /// When all its work ends.
    pub(crate) fn end(&self) -> u64 {
        self.ends.values().copied().max().unwrap_or(0)
    }
}

impl Record {
    fn add(&mut self, begin: u64, end: u64) {
        // What begins where the last pair ends, or within it, makes it longer.
        if self.last.0 <= begin && begin <= self.last.1 && self.length > 0 {
            if end <= self.last.1 {
                return;
            }
            self.length -= 16;
            self.last.1 = end;
        } else {
            self.last = (begin, end);
        }
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&self.last.0.to_le_bytes());
        pair[8..].copy_from_slice(&self.last.1.to_le_bytes());
        if let Err(error) = self.file.write_all_at(&pair, self.length) {
            eprintln!("stand-in CUDA: can't write when a device worked: {error}");
        }
        self.length += 16;
    }
}
