//! A script in force: its file, its clock, its changes.
//!
//! Owns: second 0, writing changes. Refuses: what the script says.

use super::{Drivers, NVML, SCRIPT_VARIABLE, Script};
use crate::clock::{monotonic_ns, sleep_until};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// GPUs that a script tells of, for the processes that are started with [`Gpus::environment`].
#[derive(Debug)]
pub struct Gpus {
    /// What they tell. Changes are told after [`Gpus::write`].
    pub script: Script,
    drivers: Drivers,
    path: PathBuf,
}

impl Gpus {
    /// Puts the libraries and the script into `folder`. Second 0 is now, unless the script says when.
    pub fn start(folder: &Path, script: Script) -> Result<Gpus> {
        let drivers = Drivers::install(&folder.join("drivers"))?;
        Gpus::start_with(drivers, folder, script)
    }

    /// As [`Gpus::start`], with libraries that are there.
    pub fn start_with(drivers: Drivers, folder: &Path, mut script: Script) -> Result<Gpus> {
        if script.start_ns == 0 {
            script.start_ns = monotonic_ns();
        }
        let gpus = Gpus {
            script,
            drivers,
            path: folder.join("gpus.json"),
        };
        gpus.write()?;
        Ok(gpus)
    }

    /// Tells what [`Gpus::script`] says now.
    pub fn write(&self) -> Result<()> {
        self.script
            .write(&self.path)
            .with_context(|| format!("can't write {}", self.path.display()))
    }

    /// The script's second now.
    pub fn second(&self) -> f64 {
        self.script.second(monotonic_ns())
    }

    /// Waits until the script's second `second`.
    pub fn wait_until(&self, second: f64) {
        sleep_until(self.script.start_ns + (second * 1e9) as u64);
    }

    /// The libraries.
    pub fn drivers(&self) -> &Drivers {
        &self.drivers
    }

    /// NVML's library.
    pub fn nvml(&self) -> PathBuf {
        self.drivers.library(NVML)
    }

    /// The script's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a process needs in its environment to load these libraries and to follow this script.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [
            ("LD_LIBRARY_PATH", self.drivers.folder().to_owned()),
            (SCRIPT_VARIABLE, self.path.clone()),
        ]
    }
}
