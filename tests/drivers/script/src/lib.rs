//! What the stand-in GPU driver is to tell: the script that `libnvidia-ml.so.1` of the tests reads, as Rust and as JSON.
//!
//! Owns: the format and the arithmetic of values over time. Refuses: unknown members, so that a typing error in a test does
//! not go unnoticed; NVML's functions (`infertap-driver-nvml`).
//!
//! The file is named by [`SCRIPT_VARIABLE`] and read again when it changes ([`Script::write`] replaces it in one step).
//! All times are seconds from `start_ns`, a reading of CLOCK_MONOTONIC. What a GPU's script does not name, its driver
//! answers with `NOT_SUPPORTED`, so the smallest script is `{"gpus": [{"uuid": "GPU-1", "name": "Tiny"}]}`, and
//! [`Gpu::datacenter`] is one that supports all that this format knows.
//!
//! ```
//! use infertap_driver_script::{Code, Failure, Gpu, Script, Value};
//!
//! let mut gpu = Gpu::datacenter(0);
//! gpu.power_mw = Some(Value::steps([(0.0, 90_000.0), (2.0, 650_000.0)]));
//! gpu.errors.insert("nvmlDeviceGetTemperature".to_owned(), Failure::Always(Code::NotSupported));
//! let script = Script { gpus: vec![gpu], ..Script::default() };
//! assert_eq!(script.gpus[0].energy_mj_at(3.0, &Default::default()), Some(830_000.0));
//! ```

mod cuda;
mod error;
mod gpu;
mod parts;
mod preset;
mod value;
mod work;

pub use cuda::{CUDA_VARIABLE, Cuda, CudaFailure, RuntimeCalls};
pub use error::{Code, Errors, Failure, FailureTime};
pub use gpu::{Away, Energy, Event, EventKind, Gpu, How, Process};
pub use parts::{
    Clocks, Ecc, EccCount, EccCounter, EccLocation, EccType, Instance, Link, LinkErrors, Memory, Mig, Pci,
    Pcie, Policy, PowerLimits, RemappedRows, RetiredPages, Slices, Utilization, gpm_metric_id,
};
pub use value::{Value, Work};
pub use work::{WORK_VARIABLE, read_work};

use serde::{Deserialize, Serialize};
use std::{fs, io, path::Path};

/// Environment variable that names the script.
pub const SCRIPT_VARIABLE: &str = "INFERTAP_STAND_IN_GPUS";

/// All that the stand-in driver tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// CLOCK_MONOTONIC nanoseconds of second 0; 0: when the library reads the script for the first time.
    pub start_ns: u64,
    /// `nvmlSystemGetDriverVersion`.
    pub driver_version: String,
    /// `nvmlSystemGetNVMLVersion`.
    pub nvml_version: String,
    /// `nvmlSystemGetCudaDriverVersion`: 1000 × major + 10 × minor.
    pub cuda_version: i32,
    /// The GPUs, in the order of their indices.
    pub gpus: Vec<Gpu>,
    /// How often the driver samples, and how much it keeps.
    pub samples: Samples,
    /// Functions that fail on every GPU, by name.
    pub errors: Errors,
    /// Functions that answer `FUNCTION_NOT_FOUND`, as a library does whose kernel module is older than itself.
    pub absent: Vec<String>,
}

impl Default for Script {
    fn default() -> Script {
        Script {
            start_ns: 0,
            driver_version: "580.95.05".to_owned(),
            nvml_version: "13.580.95.05".to_owned(),
            cuda_version: 13_000,
            gpus: Vec::new(),
            samples: Samples::default(),
            errors: Errors::default(),
            absent: Vec::new(),
        }
    }
}

/// The driver's own sampling.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Samples {
    /// Milliseconds from one sample to the next.
    pub period_ms: f64,
    /// Samples of each kind that are kept.
    pub kept: u32,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples {
            period_ms: 20.0,
            kept: 120,
        }
    }
}

impl Script {
    /// Reads a script.
    pub fn read(path: &Path) -> io::Result<Script> {
        let text = fs::read_to_string(path)?;
        serde_json::from_str(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Writes it to `path` so that readers have the old or the new one, never a part.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let next = path.with_extension("next");
        fs::write(&next, serde_json::to_vec_pretty(self)?)?;
        fs::rename(next, path)
    }

    /// The script's second at `monotonic_ns`.
    pub fn second(&self, monotonic_ns: u64) -> f64 {
        (monotonic_ns as f64 - self.start_ns as f64) / 1e9
    }
}
