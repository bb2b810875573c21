//! Engine family: uprobes on functions of engines and tokenizers in watched processes: when a call began and ended, its
//! first arguments, what it returned, and a few bytes from where an argument points.
//!
//! Owns: which return belongs to which entry, whatever was lost between (a C++ exception skips returns). Refuses: the
//! meaning of what it reads, and where the functions are.

use aya_ebpf::helpers::{bpf_ktime_get_ns, generated};
use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use infertap_abi::{
    CALL_ARGS, CALL_HEAD, CallFrames, CallKey, DropReason, Frame, Function, NESTED_CALLS, PIECE_SMALL, RecordHeader, RecordKind,
    record_flag,
};

use crate::call::Caller;
use crate::descriptor::EMPTY;
use crate::emit;
use crate::maps::{EVENTS, FRAMES, lost};

/// Bytes of the call to tell.
#[derive(Clone, Copy)]
enum Capture {
    /// None.
    None,
    /// So many from where this argument points.
    At { arg: usize, len: u32 },
    /// So many above the return address: what is passed by value and too large for registers.
    Stack { len: u32 },
}

impl Capture {
    #[inline(always)]
    fn len(self) -> u32 {
        match self {
            Capture::None => 0,
            Capture::At { len, .. } | Capture::Stack { len } => len,
        }
    }

    #[inline(always)]
    fn source(self, frame: &Frame) -> u64 {
        match self {
            Capture::None => 0,
            Capture::At { arg, .. } => frame.args[arg],
            Capture::Stack { .. } => frame.stack + RETURN_ADDRESS,
        }
    }
}

/// What `ret` takes from the stack on x86-64, the one architecture that these programs are built for.
const RETURN_ADDRESS: u64 = 8;

#[repr(C)]
struct Record<const N: usize> {
    header: RecordHeader,
    args: [u64; CALL_ARGS],
    bytes: [u8; N],
}

#[inline(always)]
fn frame(ctx: &ProbeContext, capture: Capture) -> Frame {
    let mut frame = Frame {
        // SAFETY: the context of a uprobe is the registers of the thread.
        stack: unsafe { (*ctx.regs).rsp },
        // SAFETY: helper without preconditions.
        entered_ns: unsafe { bpf_ktime_get_ns() },
        args: [ctx.arg(0).unwrap_or(0), ctx.arg(1).unwrap_or(0), ctx.arg(2).unwrap_or(0), ctx.arg(3).unwrap_or(0)],
        source: 0,
    };
    frame.source = capture.source(&frame);
    frame
}

/// A call is entered: remembered until its return.
#[inline(always)]
fn enter(ctx: &ProbeContext, function: Function, capture: Capture) {
    let Some(caller) = Caller::watched() else { return };
    let frame = frame(ctx, capture);
    let key = CallKey { pid_tgid: caller.pid_tgid, function: function as u32, reserved: 0 };
    if let Some(frames) = FRAMES.get_ptr_mut(&key) {
        // SAFETY: a map value that stays valid for the program's run; only this thread uses its key.
        let frames = unsafe { &mut *frames };
        // The stack grows down: a caller of this call lies above it. What lies below was left without a return.
        for _ in 0..NESTED_CALLS {
            let top = (frames.depth as usize).wrapping_sub(1);
            if top >= NESTED_CALLS || frames.frames[top].stack > frame.stack {
                break;
            }
            frames.depth = top as u64;
        }
        let depth = frames.depth as usize;
        if depth < NESTED_CALLS {
            frames.frames[depth] = frame;
            frames.depth = depth as u64 + 1;
        } else {
            // Deeper than anything that is probed goes: left behind by threads that ended, or fibers.
            frames.frames[0] = frame;
            frames.depth = 1;
        }
        return;
    }
    let mut frames = CallFrames { depth: 1, frames: [Frame::NONE; NESTED_CALLS] };
    frames.frames[0] = frame;
    if FRAMES.insert(&key, &frames, 0).is_err() {
        lost(DropReason::CallTableFull);
    }
}

/// A call has returned.
#[inline(always)]
fn leave(ctx: &RetProbeContext, function: Function, capture: Capture) {
    let Some(caller) = Caller::watched() else { return };
    let key = CallKey { pid_tgid: caller.pid_tgid, function: function as u32, reserved: 0 };
    let Some(frames) = FRAMES.get_ptr_mut(&key) else { return };
    // SAFETY: a map value that stays valid for the program's run; only this thread uses its key.
    let frames = unsafe { &mut *frames };
    // SAFETY: the context of a uretprobe is the registers of the thread.
    let stack = unsafe { (*ctx.regs).rsp };
    for _ in 0..NESTED_CALLS {
        let top = (frames.depth as usize).wrapping_sub(1);
        if top >= NESTED_CALLS {
            break;
        }
        let frame = frames.frames[top];
        // An outer call's: the return of an inner one whose entry was not seen.
        if frame.stack > stack {
            break;
        }
        frames.depth = top as u64;
        if stack - frame.stack <= RETURN_ADDRESS {
            tell(caller, function, &frame, capture, ctx.ret(), 0);
            break;
        }
    }
    if frames.depth == 0 {
        let _ = FRAMES.remove(&key);
    }
}

/// A call whose return does not matter.
#[inline(always)]
fn entered(ctx: &ProbeContext, function: Function, capture: Capture) {
    let Some(caller) = Caller::watched() else { return };
    let frame = frame(ctx, capture);
    tell(caller, function, &frame, capture, 0, record_flag::ENTERED);
}

#[inline(always)]
fn tell(caller: Caller, function: Function, frame: &Frame, capture: Capture, ret: u64, flags: u16) {
    let ts_ns = if flags & record_flag::ENTERED != 0 {
        frame.entered_ns
    } else {
        // SAFETY: helper without preconditions.
        unsafe { bpf_ktime_get_ns() }
    };
    let took = ts_ns.wrapping_sub(frame.entered_ns);
    let header = RecordHeader {
        ts_ns,
        conn_id: ret,
        offset: frame.entered_ns,
        kind: RecordKind::Call as u16,
        flags,
        captured: CALL_HEAD as u32 + capture.len(),
        len: CALL_HEAD as u32 + capture.len(),
        dur_ns: if took > u64::from(u32::MAX) { u32::MAX } else { took as u32 },
        tgid: caller.tgid(),
        tid: caller.tid(),
        fd: function as u32,
        ..EMPTY
    };
    match capture {
        Capture::None => sized::<0>(&header, frame, 0),
        Capture::At { len, .. } | Capture::Stack { len } => sized::<PIECE_SMALL>(&header, frame, len),
    }
}

#[inline(always)]
fn sized<const N: usize>(header: &RecordHeader, frame: &Frame, len: u32) {
    let Some(mut entry) = EVENTS.reserve::<Record<N>>(0) else {
        lost(DropReason::RingFull);
        return;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: `record` points at the reserved bytes; header and arguments are written whole, and of the rest exactly
    // what `captured` tells is read by the user side. The helper checks the user address; `len` is a constant within N.
    unsafe {
        (&raw mut (*record).header).write(*header);
        (&raw mut (*record).args).write(frame.args);
        if len > 0
            && generated::bpf_probe_read_user((&raw mut (*record).bytes).cast(), len, frame.source as *const _) != 0
        {
            (*record).header.captured = CALL_HEAD as u32;
            (*record).header.flags |= record_flag::FAULT;
        }
    }
    entry.submit(emit::flags());
}

macro_rules! calls {
    ($($(#[$doc:meta])* $enter:ident, $leave:ident: $function:ident, $capture:expr;)*) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $enter(ctx: ProbeContext) -> u32 {
            enter(&ctx, Function::$function, $capture);
            0
        }

        /// Its return.
        #[uretprobe]
        pub fn $leave(ctx: RetProbeContext) -> u32 {
            leave(&ctx, Function::$function, $capture);
            0
        }
    )*};
}

macro_rules! entries {
    ($($(#[$doc:meta])* $enter:ident: $function:ident, $capture:expr;)*) => {$(
        $(#[$doc])*
        #[uprobe]
        pub fn $enter(ctx: ProbeContext) -> u32 {
            entered(&ctx, Function::$function, $capture);
            0
        }
    )*};
}

// One program a function: telling them apart by the attachment's cookie takes Linux 5.15.
calls! {
    /// llama_decode(ctx, llama_batch): 56 bytes by value
    call_llama_decode, return_llama_decode: LlamaDecode, Capture::Stack { len: 56 };
    /// llama_process(ctx, type, llama_batch_ext *)
    call_llama_process, return_llama_process: LlamaProcess, Capture::At { arg: 2, len: 128 };
    /// llama_tokenize(vocab, text, text_len, tokens, …)
    call_llama_tokenize, return_llama_tokenize: LlamaTokenize, Capture::None;
    /// server_queue::get_new_id()
    call_llama_task_id, return_llama_task_id: LlamaTaskId, Capture::None;
    /// server_context::launch_slot_with_task(server_slot &, server_task): the task's id is its first field
    call_llama_slot_launch, return_llama_slot_launch: LlamaSlotLaunch, Capture::At { arg: 2, len: 4 };
    /// TokenizerImpl::encode_char_offsets(self, input, add_special_tokens): what it returns lies where the caller said
    call_hf_tokenizers_encode, return_hf_tokenizers_encode: HfTokenizersEncode, Capture::At { arg: 0, len: 256 };
    /// CoreBPE::encode(self, text, allowed_special): likewise
    call_tiktoken_encode, return_tiktoken_encode: TiktokenEncode, Capture::At { arg: 0, len: 32 };
}

entries! {
    /// server_queue::defer(server_task)
    call_llama_task_defer: LlamaTaskDefer, Capture::At { arg: 1, len: 4 };
    /// server_context::process_token(completion_token_output &, server_slot &)
    call_llama_slot_token: LlamaSlotToken, Capture::None;
    /// server_slot::release()
    call_llama_slot_release: LlamaSlotRelease, Capture::None;
    /// server_context::update_slots()
    call_llama_update_slots: LlamaUpdateSlots, Capture::None;
}
