//! A `libnvidia-ml.so.1` for machines without a GPU: NVML's C functions, which tell what a script says.
//!
//! Owns: the functions that monitoring asks for, with the real structs and return codes. Refuses: changing a device;
//! functions beyond those, which are absent symbols as in a driver that is too old. The script's format is
//! `infertap-driver-script`'s; its path is in `INFERTAP_STAND_IN_GPUS`, without which there is no driver
//! (`DRIVER_NOT_LOADED`).
#![allow(non_snake_case, reason = "the names are NVML's own")]

#[macro_use]
mod ffi;
mod device;
mod events;
mod fields;
mod gpm;
mod health;
mod identity;
mod links;
mod memory;
mod mig;
mod processes;
mod samples;
mod sensors;
mod state;
mod system;
