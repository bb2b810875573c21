//! A `libcudart.so.12` over the stand-in `libcuda.so.1`: the runtime API's functions that engines call.
//!
//! Owns: the runtime's signatures, and both ways in which runtimes call the driver: through its exported symbols, or through
//! pointers from `cuGetProcAddress`. Refuses: a device of its own: all that happens, happens in the driver.
//! `infertap-driver-script`'s `Cuda::runtime` says which way.
#![allow(non_snake_case, reason = "the names are CUDA's own")]

mod copy;
mod driver;
mod launch;
mod memory;
mod stream;

/// Defines exported functions; a second name, after `|`, is for per-thread default streams. Each body gets the driver and
/// the driver's handle for a default stream. A panic ends the process, as the ABI does not let it unwind.
macro_rules! runtime {
    ($(fn $name:ident $(| $per_thread:ident)? ($driver:ident, $default:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)+) => {
        mod body {
            #[allow(clippy::wildcard_imports, reason = "the bodies are written for the module around them")]
            use super::*;
            $(
                #[inline]
                #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
                pub(super) fn $name($driver: &crate::driver::Driver, $default: usize $(, $argument: $type)*) -> u32 {
                    $body
                }
            )+
        }

        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
            extern "C" fn $name($($argument: $type),*) -> u32 {
                body::$name(crate::driver::driver(), 0 $(, $argument)*)
            }

            per_thread! { [$($per_thread)?] $name($($argument: $type),*) }
        )+
    };
}

/// The exported function for per-thread default streams, of those that have one.
macro_rules! per_thread {
    ([] $name:ident($($argument:ident: $type:ty),*)) => {};
    ([$per_thread:ident] $name:ident($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
        extern "C" fn $per_thread($($argument: $type),*) -> u32 {
            // `CU_STREAM_PER_THREAD`.
            body::$name(crate::driver::driver(), 2 $(, $argument)*)
        }
    };
}

pub(crate) use {per_thread, runtime};

/// The stream that a caller means: its own, or the default one of its kind.
fn or_default(stream: usize, default: usize) -> usize {
    if stream == 0 { default } else { stream }
}
