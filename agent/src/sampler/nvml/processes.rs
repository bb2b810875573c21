//! The processes of a device, as its driver tells them.
//!
//! Owns: joining NVML's lists by process. Refuses: whose processes they are (`run::tap`).

use super::device::miss;
use super::fault::{Miss, Told};
use super::source::ProcessRead;
use nvml_wrapper::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use std::collections::BTreeMap;
use std::path::Path;

/// Processes of one device that are kept; a GPU holds some tens of contexts.
const MAX_PROCESSES: usize = 1024;

/// Processes with a context (compute, multi-process service, graphics), and whether their shares of the device's time are
/// told. `seen` is the stamp of the last utilisation sample; without it, shares are not asked for.
pub(super) fn read(device: &Device<'_>, seen: Option<&mut u64>) -> (Told<Vec<ProcessRead>>, Told<()>) {
    let compute = match device.running_compute_processes() {
        Ok(compute) => compute,
        Err(error) => return (Err(miss(&error)), Err(Miss::NotSupported)),
    };
    // Not every driver has these two; the first list is the one that counts.
    let others = [
        device.mps_running_compute_processes(),
        device.running_graphics_processes(),
    ];
    let all = compute.into_iter().chain(others.into_iter().flatten().flatten());
    let mut processes = join(all);
    let shares = match seen {
        None => Err(Miss::NotSupported),
        Some(seen) => match device.process_utilization_stats(*seen) {
            Ok(samples) => Ok(shares(&samples, seen)),
            // Nobody used it since.
            Err(NvmlError::NotFound | NvmlError::NoData) => Ok(BTreeMap::new()),
            Err(error) => Err(miss(&error)),
        },
    };
    if let Ok(shares) = &shares {
        for (pid, process) in &mut processes {
            process.sm = Some(shares.get(pid).copied().unwrap_or(0.0));
        }
    }
    let mut processes: Vec<ProcessRead> = processes.into_values().collect();
    for process in &mut processes {
        process.here = process.pid != 0 && Path::new("/proc").join(process.pid.to_string()).exists();
    }
    (Ok(processes), shares.map(drop))
}

/// One entry a process: a process may be in several lists, and with several contexts in one.
fn join(all: impl Iterator<Item = ProcessInfo>) -> BTreeMap<u32, ProcessRead> {
    let mut out: BTreeMap<u32, ProcessRead> = BTreeMap::new();
    for info in all.take(MAX_PROCESSES) {
        let memory = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        let process = out.entry(info.pid).or_insert(ProcessRead {
            pid: info.pid,
            memory: None,
            sm: None,
            here: false,
        });
        // The same memory is told in each list.
        process.memory = process.memory.max(memory);
    }
    out
}

/// Mean share of each process since the last time.
fn shares(samples: &[ProcessUtilizationSample], seen: &mut u64) -> BTreeMap<u32, f64> {
    let mut sums: BTreeMap<u32, (f64, u32)> = BTreeMap::new();
    let fresh = samples
        .iter()
        .filter(|sample| sample.timestamp > *seen && sample.sm_util <= 100);
    for sample in fresh {
        let (sum, count) = sums.entry(sample.pid).or_default();
        *sum += f64::from(sample.sm_util) / 100.0;
        *count += 1;
    }
    *seen = samples
        .iter()
        .map(|sample| sample.timestamp)
        .fold(*seen, u64::max);
    sums.into_iter()
        .map(|(pid, (sum, count))| (pid, sum / f64::from(count)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(pid: u32, memory: UsedGpuMemory) -> ProcessInfo {
        ProcessInfo {
            pid,
            used_gpu_memory: memory,
            gpu_instance_id: None,
            compute_instance_id: None,
        }
    }

    #[test]
    fn a_process_in_several_lists_is_one() {
        let all = [
            info(7, UsedGpuMemory::Used(100)),
            info(7, UsedGpuMemory::Unavailable),
            info(9, UsedGpuMemory::Unavailable),
            info(7, UsedGpuMemory::Used(100)),
        ];
        let joined = join(all.into_iter());
        let told: Vec<_> = joined.values().map(|p| (p.pid, p.memory)).collect();
        assert_eq!(told, [(7, Some(100)), (9, None)]);
    }

    #[test]
    fn shares_are_means_of_what_is_new_and_possible() {
        let sample = |pid, timestamp, sm_util| ProcessUtilizationSample {
            pid,
            timestamp,
            sm_util,
            mem_util: 0,
            enc_util: 0,
            dec_util: 0,
        };
        let mut seen = 10;
        let samples = [
            sample(7, 10, 100),
            sample(7, 11, 50),
            sample(7, 12, 100),
            sample(9, 12, 25),
            // Drivers have told such.
            sample(1, 13, 4_294_967_295),
        ];
        let told: Vec<_> = shares(&samples, &mut seen).into_iter().collect();
        assert_eq!((told, seen), (vec![(7, 0.75), (9, 0.25)], 13));
    }
}
