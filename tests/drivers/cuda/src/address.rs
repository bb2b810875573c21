//! `cuGetProcAddress`: pointers by name.
//!
//! Owns: which name is which function. Refuses: versions: a name without `_v2` is the newest.

use crate::{
    context, copy,
    ffi::{Ptr, text},
    graph, launch, memory,
    state::{Error, call},
    stream,
};
use std::ffi::c_char;

cuda! {
    fn cuGetProcAddress(_entry, name: Ptr<c_char>, function: Ptr<*const ()>, _version: i32, _flags: u64) {
        function.set(find(&text(name)?).ok_or(Error::NotFound)?)
    }

    fn cuGetProcAddress_v2(
        _entry, name: Ptr<c_char>, function: Ptr<*const ()>, _version: i32, _flags: u64, status: Ptr<u32>,
    ) {
        let found = find(&text(name)?);
        // Found, or no such symbol; few callers ask.
        let _ = status.set(u32::from(found.is_none()));
        function.set(found.unwrap_or(std::ptr::null()))?;
        found.map(|_| ()).ok_or(Error::NotFound)
    }
}

fn find(name: &str) -> Option<*const ()> {
    let all = [
        context::EXPORTS,
        copy::EXPORTS,
        graph::EXPORTS,
        launch::EXPORTS,
        memory::EXPORTS,
        stream::EXPORTS,
        EXPORTS,
    ];
    let newest = |version: &str| {
        let wanted = format!("{name}{version}");
        let mut each = all.iter().flat_map(|exports| exports.iter());
        each.find(|(exported, _)| *exported == wanted)
            .map(|(_, function)| *function)
    };
    // The second form of this one, which takes a context, is newer than this driver says that it is.
    let second = if name == "cuCtxSynchronize" {
        None
    } else {
        newest("_v2")
    };
    second.or_else(|| newest(""))
}

/// The text of a `CUresult`.
#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, text: Ptr<*const c_char>) -> u32 {
    call("cuGetErrorString", crate::state::Entry::Exported, |_| {
        let of = match code {
            0 => c"no error",
            1 => c"invalid argument",
            2 => c"out of memory",
            101 => c"invalid device ordinal",
            201 => c"invalid device context",
            400 => c"invalid resource handle",
            500 => c"named symbol not found",
            600 => c"device not ready",
            _ => return Err(Error::InvalidValue),
        };
        text.set(of.as_ptr())
    })
}
