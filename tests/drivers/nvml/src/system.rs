//! The library and the driver as a whole.
//!
//! Owns: initialisation, versions, names of errors. Refuses: devices.

use crate::ffi::Ptr;
use std::ffi::{CStr, c_char};

nvml! {
    fn nvmlInit_v2(_view) {
        Ok(())
    }

    fn nvmlInit(_view) {
        Ok(())
    }

    fn nvmlInitWithFlags(_view, _flags: u32) {
        Ok(())
    }

    fn nvmlShutdown(_view) {
        Ok(())
    }

    fn nvmlSystemGetDriverVersion(view, version: Ptr<c_char>, length: u32) {
        version.set_text(length, &view.script.driver_version)
    }

    fn nvmlSystemGetNVMLVersion(view, version: Ptr<c_char>, length: u32) {
        version.set_text(length, &view.script.nvml_version)
    }

    fn nvmlSystemGetCudaDriverVersion(view, version: Ptr<i32>) {
        version.set(view.script.cuda_version)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(view, version: Ptr<i32>) {
        version.set(view.script.cuda_version)
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    let text: &'static CStr = match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        5 => c"Already Initialized",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        11 => c"Interrupt Request Issue",
        12 => c"NVML Shared Library Not Found",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        17 => c"GPU access blocked by the operating system",
        18 => c"Driver/library version mismatch",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"Not Ready",
        28 => c"GPU not found",
        29 => c"Invalid state",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}
