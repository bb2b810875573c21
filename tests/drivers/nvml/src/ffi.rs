//! The C boundary: output parameters, strings, and the form of every exported function.
//!
//! Owns: all reading and writing through callers' pointers. Refuses: knowing what is written.

use infertap_driver_script::Code;
use std::{
    ffi::{CStr, c_char},
    ptr,
};

/// A parameter through which a caller gets or gives a `T`, or an array of them. It is made by callers in C alone, whom
/// NVML's header obliges to pass null or memory for as many values as the function says.
#[repr(transparent)]
pub(crate) struct Ptr<T>(*mut T);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Ptr<T> {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T: Copy> Ptr<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Reads it.
    pub(crate) fn get(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller's promise holds: a readable, initialised `T`.
        Ok(unsafe { ptr::read_unaligned(self.0) })
    }

    /// Writes it.
    pub(crate) fn set(self, value: T) -> Result<(), Code> {
        self.set_at(0, value)
    }

    /// Writes one of an array; `at` must be below the length that the caller gave.
    pub(crate) fn set_at(self, at: usize, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller's promise holds: room for as many values as it said, and `at` is below that.
        unsafe { ptr::write_unaligned(self.0.add(at), value) };
        Ok(())
    }

    /// Reads one of an array; `at` must be below the length that the caller gave.
    pub(crate) fn get_at(self, at: usize) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: as in `set_at`, and initialised.
        Ok(unsafe { ptr::read_unaligned(self.0.add(at)) })
    }

    /// Writes it if the caller wants it.
    pub(crate) fn set_if_any(self, value: T) {
        // The only failure is that there is none.
        let _ = self.set(value);
    }
}

impl Ptr<c_char> {
    /// Writes a string and its end into a buffer of `length`.
    pub(crate) fn set_text(self, length: u32, text: &str) -> Result<(), Code> {
        if text.len() >= length as usize {
            return Err(Code::InsufficientSize);
        }
        for (at, byte) in text.bytes().chain([0]).enumerate() {
            self.set_at(at, byte as c_char)?;
        }
        Ok(())
    }

    /// Reads a string.
    pub(crate) fn text(self) -> Result<String, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller's promise holds: a string with its end.
        let text = unsafe { CStr::from_ptr(self.0) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// An array of C characters, filled from a string that is cut to fit.
pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (place, byte) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *place = byte as c_char;
    }
    array
}

/// Defines exported functions. Each body gets the [`crate::state::View`] of this call and returns `Result<(), Code>`. A
/// panic ends the process, as the ABI does not let it unwind.
macro_rules! nvml {
    ($(fn $name:ident($view:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)+) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> u32 {
            crate::state::call(stringify!($name), |$view| $body)
        }
    )+ };
}
