//! The stand-in GPU driver: where its libraries are, and the script that they follow.
//!
//! Owns: putting the libraries under the names that the dynamic loader and discovery know, scripts that change while a test
//! runs. Refuses: the script's format (`infertap-driver-script`) and NVML's functions (`infertap-driver-nvml`).

mod drivers;
mod scripted;

pub use drivers::{Drivers, NVML};
pub use infertap_driver_script::*;
pub use scripted::Gpus;
