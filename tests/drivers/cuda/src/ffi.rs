//! The C boundary: output parameters and the form of every function.
//!
//! Owns: all reading and writing through callers' pointers. Refuses: knowing what is written.

use crate::state::Error;
use std::{ptr, sync::atomic::AtomicU32};

/// A parameter through which a caller gets or gives a `T`. It is made by callers in C alone, whom CUDA's header obliges to
/// pass null or memory for one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Ptr<T> {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T: Copy> Ptr<T> {
    /// Reads it.
    pub(crate) fn get(self) -> Result<T, Error> {
        if self.0.is_null() {
            return Err(Error::InvalidValue);
        }
        // SAFETY: not null, so the caller's promise holds: a readable, initialised `T`.
        Ok(unsafe { ptr::read_unaligned(self.0) })
    }

    /// Writes it.
    pub(crate) fn set(self, value: T) -> Result<(), Error> {
        if self.0.is_null() {
            return Err(Error::InvalidValue);
        }
        // SAFETY: not null, so the caller's promise holds: room for a `T`.
        unsafe { ptr::write_unaligned(self.0, value) };
        Ok(())
    }
}

/// Reads a string that a caller passes.
pub(crate) fn text(of: Ptr<std::ffi::c_char>) -> Result<String, Error> {
    if of.0.is_null() {
        return Err(Error::InvalidValue);
    }
    // SAFETY: not null, so the caller's promise holds: a string with its end.
    let text = unsafe { std::ffi::CStr::from_ptr(of.0) };
    Ok(text.to_string_lossy().into_owned())
}

/// Defines functions of the driver. `fn a | b (…)` is exported as `a`, and as `b` for per-thread default streams. Each body
/// gets the [`crate::state::Entry`] and returns `Result<(), Error>`. `EXPORTS` has the functions that `cuGetProcAddress`
/// gives out: which way a call came in is counted, so no two of these are the same code. What is exported begins as in the
/// real driver ([`enter!`]). A panic ends the process, as the ABI does not let it unwind.
macro_rules! cuda {
    ($(fn $name:ident $(| $ptsz:ident)? ($entry:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)+) => {
        mod body {
            #[allow(clippy::wildcard_imports, reason = "the bodies are written for the module around them")]
            use super::*;
            $(
                #[inline]
                #[allow(clippy::too_many_arguments, clippy::unnecessary_wraps, reason = "the signatures are CUDA's own")]
                pub(super) fn $name($entry: crate::state::Entry $(, $argument: $type)*) -> Result<(), crate::state::Error> {
                    $body
                }
            )+
        }

        $(
            enter! { $name, $name, Exported, ($($argument: $type),*) }
            per_thread! { [$($ptsz)?] $name($($argument: $type),*) }
        )+

        mod internal {
            #[allow(clippy::wildcard_imports, reason = "as the bodies")]
            use super::*;
            $(
                #[inline(never)]
                #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
                pub(super) extern "C" fn $name($($argument: $type),*) -> u32 {
                    crate::state::call(stringify!($name), crate::state::Entry::Internal, |entry| {
                        body::$name(entry $(, $argument)*)
                    })
                }
            )+
        }

        /// Exported name, and the function that is not exported.
        pub(crate) const EXPORTS: &[(&str, *const ())] = &[$((stringify!($name), internal::$name as *const ())),+];
    };
}

/// An exported function. As every one of the real driver's (535 and 550), it compares a word with the mark of a driver that
/// has ended, and jumps to what does the work: so the cost of a probe on it is that of one on the real function.
macro_rules! enter {
    ($symbol:ident, $name:ident, $entry:ident, ($($argument:ident: $type:ty),*)) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
        extern "C" fn $symbol($($argument: $type),*) -> u32 {
            #[allow(clippy::too_many_arguments, reason = "the signatures are CUDA's own")]
            extern "C" fn work($($argument: $type),*) -> u32 {
                crate::state::call(stringify!($name), crate::state::Entry::$entry, |entry| {
                    body::$name(entry $(, $argument)*)
                })
            }
            std::arch::naked_asm!(
                "cmp dword ptr [rip + {life}], 0x321cba00",
                "je 2f",
                "jmp {work}",
                "2:",
                // CUDA_ERROR_DEINITIALIZED
                "mov eax, 4",
                "ret",
                life = sym crate::ffi::LIFE,
                work = sym work,
            )
        }
    };
}

/// What exported functions look at first. Programs do not use a driver that has ended: it stays 0.
pub(crate) static LIFE: AtomicU32 = AtomicU32::new(0);

/// The exported function for per-thread default streams, of those that have one.
macro_rules! per_thread {
    ([] $name:ident($($argument:ident: $type:ty),*)) => {};
    ([$ptsz:ident] $name:ident($($argument:ident: $type:ty),*)) => {
        enter! { $ptsz, $name, PerThread, ($($argument: $type),*) }
    };
}
