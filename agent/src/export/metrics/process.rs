//! The agent's own cost: `infertap_cpu_seconds_total` and `infertap_memory_bytes`, read when scraped.
//!
//! Owns: the reading of `/proc/self/stat`. Refuses: the cost of BPF programs and maps, which the kernel does not
//! account to a process. When procfs cannot be read both are absent.

use super::{
    catalog::{CPU_SECONDS, MEMORY_BYTES},
    scraped::{descs, family_of},
};
use prometheus::{
    core::{Collector, Desc},
    proto,
};

/// The collector.
#[derive(Debug)]
pub(crate) struct ProcessCollector(Vec<Desc>);

impl ProcessCollector {
    pub(crate) fn new() -> prometheus::Result<ProcessCollector> {
        Ok(ProcessCollector(descs(&[CPU_SECONDS, MEMORY_BYTES])?))
    }
}

impl Collector for ProcessCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.0.iter().collect()
    }

    fn collect(&self) -> Vec<proto::MetricFamily> {
        let Ok(stat) = procfs::process::Process::myself().and_then(|process| process.stat()) else {
            return Vec::new();
        };
        let ticks = stat.utime.saturating_add(stat.stime);
        let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
        let bytes = stat.rss.saturating_mul(procfs::page_size()) as f64;
        vec![
            family_of(CPU_SECONDS, [([], seconds)]),
            family_of(MEMORY_BYTES, [([], bytes)]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_time_and_memory() {
        let collector = ProcessCollector::new().expect("valid");
        let read = || {
            let families = collector.collect();
            let cpu = families[0].get_metric()[0].get_counter().get_value();
            let memory = families[1].get_metric()[0].get_gauge().get_value();
            (cpu, memory)
        };
        let (before, memory) = read();
        assert!(memory > 500_000.0, "{memory}");
        // Burn time until the kernel's 10 ms ticks show it.
        let mut after = before;
        let mut work = 0_u64;
        while after <= before {
            work = (0..100_000).fold(work, |a, b| std::hint::black_box(a ^ b));
            after = read().0;
        }
        assert!(after > before);
    }
}
