//! How the stand-in CUDA libraries behave.
//!
//! Owns: the settings and how they reach the libraries. Refuses: what programs ask of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Environment variable that holds a [`Cuda`] as JSON. Without it the defaults hold.
pub const CUDA_VARIABLE: &str = "INFERTAP_STAND_IN_CUDA";

/// How the stand-in CUDA libraries behave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cuda {
    /// Devices that there are.
    pub devices: u32,
    /// Bytes of memory of each; an allocation beyond it fails with `CUDA_ERROR_OUT_OF_MEMORY`.
    pub memory: u64,
    /// How fast copies are, GiB/s; 0: they take no time.
    pub copy_gib_s: f64,
    /// Microseconds that a kernel takes whose name does not end in `_NNNus`.
    pub kernel_us: u64,
    /// How the runtime calls the driver.
    pub runtime: RuntimeCalls,
    /// Calls that fail, by the exported name without `_ptsz`.
    pub failures: BTreeMap<String, Vec<CudaFailure>>,
}

impl Default for Cuda {
    fn default() -> Cuda {
        Cuda {
            devices: 1,
            memory: 80 << 30,
            copy_gib_s: 0.0,
            kernel_us: 0,
            runtime: RuntimeCalls::default(),
            failures: BTreeMap::new(),
        }
    }
}

/// How the runtime calls the driver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeCalls {
    /// Through the symbols that the driver exports.
    #[default]
    Exported,
    /// Through pointers from `cuGetProcAddress`, which are not the addresses of exported symbols.
    ProcAddress,
}

/// Calls that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaFailure {
    /// The first of them; 1 is the process's first call of the function.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// `CUresult`.
    pub code: u32,
}

impl Cuda {
    /// From the environment; an error tells what is wrong there.
    pub fn from_environment() -> Result<Cuda, String> {
        match std::env::var(CUDA_VARIABLE) {
            Err(_) => Ok(Cuda::default()),
            Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{CUDA_VARIABLE}: {error}")),
        }
    }

    /// Value of [`CUDA_VARIABLE`].
    pub fn to_environment(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the `number`-th call of a function fails with, if it is to.
    pub fn failure(&self, function: &str, number: u64) -> Option<u32> {
        let failures = self.failures.get(function)?;
        let is_it = |failure: &&CudaFailure| (failure.first..failure.first + failure.count).contains(&number);
        failures.iter().find(is_it).map(|failure| failure.code)
    }
}
