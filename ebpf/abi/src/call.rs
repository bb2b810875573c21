//! Calls of functions inside watched processes: which functions, and the layout of their records and of calls under way.
//!
//! Owns: the functions' numbers. Refuses: where a function is found (the agent's) and what a call means (the core's).

use crate::UnknownValue;

/// Argument values that a record of a call carries, captured or not: the first words of its payload.
pub const CALL_ARGS: usize = 4;

/// Bytes of the payload before what was captured: the arguments, eight bytes each.
pub const CALL_HEAD: usize = CALL_ARGS * 8;

/// Calls of one function that are followed within each other on one thread.
pub const NESTED_CALLS: usize = 3;

discriminants! {
    /// A function whose calls are told. Arguments are counted from 0, with `this` where it has one; those wider than a
    /// register (a `llama_batch`) do not count. What is captured follows the arguments.
    Function: u32 {
        /// `llama_decode(ctx, llama_batch)`: one step. Captured: the batch, seven words.
        LlamaDecode = 1,
        /// `llama_process(ctx, type, llama_batch_ext *)`: one step. Captured: the first sixteen words of the batch.
        LlamaProcess = 2,
        /// `llama_tokenize(vocab, text, text_len, tokens, …)`; returns the count, or minus what there was no room for.
        LlamaTokenize = 3,
        /// llama.cpp's server: `server_queue::get_new_id()`, in the thread that serves the request. Returns the task's id.
        LlamaTaskId = 4,
        /// llama.cpp's server: `server_queue::defer(server_task)`: no slot is free. Captured: the task's id, four bytes.
        LlamaTaskDefer = 5,
        /// llama.cpp's server: `launch_slot_with_task(this, server_slot &, server_task)`. Captured: the task's id, four bytes.
        LlamaSlotLaunch = 6,
        /// llama.cpp's server: `process_token(this, completion_token_output &, server_slot &)`, entered: a token was sampled.
        LlamaSlotToken = 7,
        /// llama.cpp's server: `server_slot::release(this)`, entered: the slot is given up.
        LlamaSlotRelease = 8,
        /// llama.cpp's server: `update_slots(this)`, entered: a step is prepared.
        LlamaUpdateSlots = 9,
        /// Hugging Face `tokenizers`: one text to ids. Captured on return: the `Encoding`, or what there is instead, 256
        /// bytes; the caller passes its place in the first register, as for every large value that Rust returns.
        HfTokenizersEncode = 16,
        /// `tiktoken`: one text to ids. Captured on return: a vector of ids, and what may follow it, 32 bytes.
        TiktokenEncode = 17,
    }
}

/// Key of the `FRAMES` map: calls of one function on one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct CallKey {
    /// Thread group and thread, as the kernel packs them.
    pub pid_tgid: u64,
    /// A [`Function`].
    pub function: u32,
    /// Unused, zero.
    pub reserved: u32,
}

/// One call under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Frame {
    /// Stack pointer at entry: tells which return belongs to it.
    pub stack: u64,
    /// When it was entered.
    pub entered_ns: u64,
    /// Its first arguments.
    pub args: [u64; CALL_ARGS],
    /// Where to capture from when it returns.
    pub source: u64,
}

impl Frame {
    /// No call.
    pub const NONE: Frame = Frame {
        stack: 0,
        entered_ns: 0,
        args: [0; CALL_ARGS],
        source: 0,
    };
}

/// Value of the `FRAMES` map: the innermost call is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CallFrames {
    /// How many there are, at most [`NESTED_CALLS`].
    pub depth: u64,
    /// The outermost is the first.
    pub frames: [Frame; NESTED_CALLS],
}

const _: () = assert!(size_of::<CallKey>() == 16);
const _: () = assert!(size_of::<Frame>() == 56);
const _: () = assert!(size_of::<CallFrames>() == 176);
