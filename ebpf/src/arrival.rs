//! Arrival family: when the bytes that a watched server reads had reached its socket, and who sent them. A server whose
//! threads are busy reads a request late, and its client has waited since it was sent.
//!
//! Owns: the time of the first unread byte of each socket, by its cookie; the peer's address. Refuses: sockets on other ports than those that
//! the agent names. Both tracepoints tell their fields by value, so no kernel structure is read; their offsets come
//! from the event's format.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;

use crate::call::{Caller, op};
use crate::descriptor;
use crate::maps::{ARRIVALS, CALLS, PORTS};

/// Offsets in the record of `tcp:tcp_probe`: local port (host order), payload bytes of the segment, socket cookie.
#[unsafe(no_mangle)]
static PROBE_SPORT_OFFSET: u32 = 64;
#[unsafe(no_mangle)]
static PROBE_LEN_OFFSET: u32 = 76;
#[unsafe(no_mangle)]
static PROBE_COOKIE_OFFSET: u32 = 112;
/// Offsets in the record of `tcp:tcp_rcv_space_adjust`: local port (host order), the peer's address as IPv6, socket cookie.
#[unsafe(no_mangle)]
static ADJUST_SPORT_OFFSET: u32 = 16;
#[unsafe(no_mangle)]
static ADJUST_PEER_OFFSET: u32 = 46;
#[unsafe(no_mangle)]
static ADJUST_COOKIE_OFFSET: u32 = 64;

/// A field of the tracepoint's record, whose offset is one of the constants above; 0 where it can't be read.
macro_rules! field {
    ($ctx:ident, $offset:ident: $ty:ty) => {{
        // SAFETY: a constant that the loader set. It is read with a helper because the verifier refuses a context
        // pointer that was added to.
        unsafe { $ctx.read_at::<$ty>((&raw const $offset).read_volatile() as usize) }.unwrap_or(0)
    }};
}

#[inline(always)]
fn is_watched(port: u16) -> bool {
    PORTS.get(u32::from(port >> 6)).is_some_and(|ports| ports >> (port & 63) & 1 != 0)
}

/// tcp:tcp_probe: a segment reached an established socket.
#[tracepoint]
pub fn segment_arrived(ctx: TracePointContext) -> u32 {
    if field!(ctx, PROBE_LEN_OFFSET: u16) != 0 && is_watched(field!(ctx, PROBE_SPORT_OFFSET: u16)) {
        const NO_EXIST: u64 = 1;
        // SAFETY: helper without preconditions.
        let now = unsafe { bpf_ktime_get_ns() };
        // That there is an entry means that older bytes are unread.
        let _ = ARRIVALS.insert(&field!(ctx, PROBE_COOKIE_OFFSET: u64), &now, NO_EXIST);
    }
    0
}

/// tcp:tcp_rcv_space_adjust: the current thread takes bytes out of a socket, within its call.
#[tracepoint]
pub fn bytes_taken(ctx: TracePointContext) -> u32 {
    if !is_watched(field!(ctx, ADJUST_SPORT_OFFSET: u16)) {
        return 0;
    }
    let caller = Caller::current();
    // SAFETY: a map value that stays valid for the program's run, and that only this thread uses.
    let mut call = CALLS.get_ptr_mut(&caller.pid_tgid).map(|call| unsafe { &mut *call });
    if let Some(call) = &call {
        descriptor::peer(caller, call, || {
            // SAFETY: as in `field`.
            unsafe { ctx.read_at((&raw const ADJUST_PEER_OFFSET).read_volatile() as usize) }.ok()
        });
    }
    let cookie = field!(ctx, ADJUST_COOKIE_OFFSET: u64);
    // SAFETY: a map value that stays readable for the program's run; copied at once.
    let Some(arrived) = ARRIVALS.get_ptr(&cookie).map(|at| unsafe { *at }) else { return 0 };
    if let Some(call) = &mut call {
        if call.op == op::PEEK {
            // It leaves them where they are.
            return 0;
        }
        if call.arrived_ns == 0 {
            call.arrived_ns = arrived;
        }
    }
    // Whoever took them, they are gone.
    let _ = ARRIVALS.remove(&cookie);
    0
}
