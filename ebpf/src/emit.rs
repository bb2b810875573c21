//! Records into the ring: one size class a record, wake-ups batched.

use aya_ebpf::helpers::generated;
use infertap_abi::{DropReason, PEER_LEN, PIECE_LARGE, PIECE_MEDIUM, PIECE_SMALL, RecordHeader, record_flag};

use crate::maps::{EVENTS, lost};

/// `BPF_RB_AVAIL_DATA`: bytes that the reader has not taken.
const AVAILABLE: u64 = 0;
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

/// Unread bytes past which the reader is woken at once. Below it, the reader's own short timer is early enough, and
/// a wake-up (an interrupt to another CPU) is saved for most records.
const WAKE_AT: u64 = 256 << 10;

#[repr(C)]
struct Record<const N: usize> {
    header: RecordHeader,
    bytes: [u8; N],
}

/// Wake-up flags, without a branch: each branch here is one more path through every step of the payload loops.
#[inline(always)]
pub fn flags() -> u64 {
    let batches = EVENTS.query(AVAILABLE) / WAKE_AT;
    let any = (batches | batches.wrapping_neg()) >> 63;
    NO_WAKEUP + any * (FORCE_WAKEUP - NO_WAKEUP)
}

/// A record without payload; `urgent` wakes the reader.
#[inline(always)]
pub fn control(header: &RecordHeader, urgent: bool) {
    let Some(mut entry) = EVENTS.reserve::<RecordHeader>(0) else {
        lost(DropReason::RingFull);
        return;
    };
    entry.write(*header);
    entry.submit(if urgent { FORCE_WAKEUP } else { flags() });
}

/// A record of who the other end of a connection is. `header.captured` must be [`PEER_LEN`].
#[inline(always)]
pub fn peer(header: &RecordHeader, address: [u8; PEER_LEN]) {
    let Some(mut entry) = EVENTS.reserve::<Record<PEER_LEN>>(0) else {
        lost(DropReason::RingFull);
        return;
    };
    entry.write(Record { header: *header, bytes: address });
    entry.submit(flags());
}

/// A record with up to `N` bytes from user address `source`. `header.captured` must be what is asked for.
#[inline(always)]
fn sized<const N: usize>(header: &RecordHeader, source: u64) -> u32 {
    let Some(mut entry) = EVENTS.reserve::<Record<N>>(0) else { return 1 };
    let record = entry.as_mut_ptr();
    // SAFETY: `record` points at N + 64 reserved bytes; the header is written whole, and of the payload exactly what
    // `captured` tells is read by the user side. The helper checks the user address.
    unsafe {
        (&raw mut (*record).header).write(*header);
        // Read back from the ring, whose memory the verifier does not follow: the bound below is all it knows of the
        // size then, and the loops that call this stay cheap to verify.
        let wanted = (&raw const (*record).header.captured).read_volatile();
        if wanted as usize > N
            || generated::bpf_probe_read_user((&raw mut (*record).bytes).cast(), wanted, source as *const _) != 0
        {
            (*record).header.captured = 0;
            (*record).header.flags |= record_flag::FAULT;
        }
    }
    entry.submit(flags());
    0
}

/// A data record of `header.captured` bytes, at most [`PIECE_LARGE`], in the smallest class that holds them. Returns how
/// many records (0 or 1) were lost to a full ring.
#[inline(never)]
pub fn data(header: &RecordHeader, source: u64) -> u32 {
    if header.captured as usize <= PIECE_SMALL {
        sized::<PIECE_SMALL>(header, source)
    } else if header.captured as usize <= PIECE_MEDIUM {
        sized::<PIECE_MEDIUM>(header, source)
    } else {
        sized::<PIECE_LARGE>(header, source)
    }
}
