//! The `[gpu]` section.
//!
//! Owns: its keys, defaults and ranges. Refuses: what follows from them (the sampler, and the probes on CUDA).

use crate::config::Span;
use crate::config_section;
use serde::{Deserialize, Serialize};

config_section! {
    /// What is read of NVIDIA GPUs, and of the calls that engines make to them (see docs/gpu.md and docs/cuda.md).
    pub struct GpuConfig {
        /// Whether GPUs are read by NVML: "auto" (where the host has it; where not, that is said once), "on" (its absence
        /// is a trouble: infertap_probe_up{probe="nvml"} is 0) or "off".
        pub nvml: NvmlMode = NvmlMode::Auto,
        /// Time between two readings of all GPUs; 100ms to 1m. What NVML samples by itself (power, utilisation) is not
        /// lost in between as long as its buffer holds: a few seconds for power, ten and more for utilisation.
        pub period: Span = Span::seconds(1),
        /// NVML's library, where the dynamic linker does not find libnvidia-ml.so.1 or should take another; a path.
        pub nvml_library: String = String::new(),
        /// Count the CUDA calls of engines: launches, copies, allocations, waits (see docs/cuda.md). The functions of
        /// libcuda and libcudart are probed where a process of an engine has them mapped; a call that is probed takes
        /// some microseconds longer. With false nothing is attached there.
        pub cuda: bool = true,
    }
}

/// Whether GPUs are read by NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum NvmlMode {
    /// Where the host has it.
    Auto,
    /// Its absence is a trouble.
    On,
    /// Never.
    Off,
}

impl GpuConfig {
    /// What is out of its range: key, and why and what would be right.
    pub fn invalid(&self) -> Vec<(String, String)> {
        let period = self.period;
        let fits = (Span::millis(100)..=Span::seconds(60)).contains(&period);
        (!fits)
            .then(|| {
                (
                    "gpu.period".to_owned(),
                    format!("{period} is not within 100ms to 1m"),
                )
            })
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_period_has_a_range() {
        let mut config = GpuConfig::default();
        for (period, fits) in [
            (Span::millis(99), false),
            (Span::millis(100), true),
            (Span::seconds(60), true),
            (Span::millis(60_001), false),
        ] {
            config.period = period;
            assert_eq!(config.invalid().is_empty(), fits, "{period}");
        }
    }
}
