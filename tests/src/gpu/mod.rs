//! The stand-in GPU driver: where its libraries are, and the script that they follow.
//!
//! Owns: putting the libraries under the names that the dynamic loader and discovery know, scripts that change while a test
//! runs. Refuses: the script's format (`infertap-driver-script`) and NVML's functions (`infertap-driver-nvml`).

pub mod api;
pub mod calls;
mod drivers;
pub mod program;
mod scripted;

pub use drivers::{CUDA, CUDART, Drivers, NVML};
pub use infertap_driver_script::*;
pub use scripted::Gpus;
