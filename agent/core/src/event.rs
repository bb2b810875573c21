//! What the core is told: one event, with its timestamp, decoded from a ring-buffer record or made by the agent.
//!
//! Owns: the decoding of records, with every field checked. Refuses: interpretation of the bytes.

#[cfg(test)]
mod tests;

use crate::{
    Counted, EngineInfo, Nanos,
    gpu::{self, AllocFailure, CudaBurst, CudaMapping, GpuReading},
    pods::PodChange,
    pressure::MemoryReading,
};
use infertap_abi::{
    CALL_ARGS, CALL_HEAD, Direction, Function, HEADER_LEN, PEER_LEN, RecordHeader, RecordKind, Role,
    Transport, record_flag,
};
use std::{net::IpAddr, sync::Arc};

/// Identity of a connection, unique while one agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// One thing that happened, and when.
#[derive(Debug, Clone)]
pub struct Event<'a> {
    /// When it happened. Reads: when the call returned. Writes: when the call began.
    pub at: Nanos,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// Where a socket event happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The connection.
    pub conn: ConnId,
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// Thread; streams move between threads, so it never is a key.
    pub tid: u32,
    /// Descriptor.
    pub fd: u32,
    /// Socket family.
    pub transport: Transport,
    /// How the process came by the socket.
    pub role: Role,
    /// The connection was open before the agent saw it.
    pub late: bool,
}

/// The end of a connection, and how much it carried: what shows that its last pieces were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Where.
    pub socket: Socket,
    /// Bytes read since the connection was first seen, delivered here or not; 0 when nobody counted.
    pub bytes_in: u64,
    /// Bytes written, likewise.
    pub bytes_out: u64,
    /// The process had been told that its peer is gone (end of stream, or a failed call). [`EventKind::Eof`] and
    /// [`EventKind::Error`] said so before, unless they were lost.
    pub peer_gone: bool,
}

/// A call of a function. [`Event::at`] is `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call<'a> {
    /// Process (thread group), initial PID namespace.
    pub tgid: u32,
    /// Thread.
    pub tid: u32,
    /// Which function.
    pub function: Function,
    /// When it was entered.
    pub begin: Nanos,
    /// When it returned; `begin` where its return is not probed.
    pub end: Nanos,
    /// Its first arguments, as they stood in registers: the upper half of a narrower one is not defined.
    pub args: [u64; CALL_ARGS],
    /// What it returned, as it stood in the register; `None` where its return is not probed.
    pub ret: Option<u64>,
    /// What was captured; empty when user memory could not be read.
    pub bytes: &'a [u8],
}

/// What happened.
#[derive(Debug, Clone)]
pub enum EventKind<'a> {
    /// A connection began.
    Open(Socket),
    /// Bytes moved.
    Data {
        /// Where.
        socket: Socket,
        /// Which way.
        direction: Direction,
        /// Position of the first byte in its direction's stream since the connection was first seen. A jump past the
        /// expected position means that the bytes between were lost.
        offset: u64,
        /// Stream bytes that this piece stands for.
        len: u32,
        /// The first `bytes.len() ≤ len` of them; the rest was over the capture budget.
        bytes: &'a [u8],
        /// When the first byte of the call had reached the socket, where the kernel told; at most the event's time.
        arrived: Option<Nanos>,
        /// How long the system call took, nanoseconds (saturating at 4.29 s).
        dur_ns: u32,
        /// The socket took less than it was offered.
        blocked: bool,
    },
    /// The peer will send no more.
    Eof(Socket),
    /// The process will send no more.
    Shutdown(Socket),
    /// A read (`In`) or write (`Out`) failed; `errno` is 0 where the probe can't see it.
    Error {
        /// Where.
        socket: Socket,
        /// Which way.
        direction: Direction,
        /// Positive `errno`, or 0.
        errno: u16,
    },
    /// A write was refused because the socket's buffer is full: the client does not keep up.
    Stall(Socket),
    /// The last descriptor was closed.
    Close(Closed),
    /// Who the other end of a TCP connection is; told before the bytes of the read in which it was learnt.
    Peer {
        /// Where.
        socket: Socket,
        /// Its address; an IPv4 one is an IPv4 one, whatever the socket.
        address: IpAddr,
        /// Bytes that had been read before.
        offset: u64,
    },
    /// A descriptor that the kernel side can't name. For the agent; the core ignores it.
    FdUnknown(Socket),
    /// A process executed a program.
    Exec {
        /// Process.
        tgid: u32,
    },
    /// A watched process forked.
    Fork {
        /// The parent process.
        parent: u32,
        /// The new process.
        child: u32,
    },
    /// A process ended.
    Exit {
        /// Process.
        tgid: u32,
    },
    /// A process of an engine called a function that is probed.
    Call(Call<'a>),
    /// A GPU was read.
    Gpu(Arc<GpuReading>),
    /// A process of an engine waited for work that it had given to its GPUs.
    CudaBurst(CudaBurst),
    /// A process of an engine got no GPU memory.
    AllocFailure(AllocFailure),
    /// The memory of an engine's control groups was read.
    Memory(Arc<MemoryReading>),
    /// A pod came, changed or went.
    Pod(&'a PodChange),
    /// An answer to [`Observation::Count`](crate::Observation::Count).
    Counted(Counted),
    /// A process of an engine made, mapped or gave back physical GPU memory. For the agent; the core ignores it.
    CudaMapping(CudaMapping),
    /// Discovery found an engine, or learned more about one that it had found (same id).
    EngineUp(Arc<EngineInfo>),
    /// All processes of an engine are gone.
    EngineDown {
        /// Its id.
        engine: Arc<str>,
    },
}

/// Why a record could not be decoded. Counted; the record is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than a header.
    #[error("record is shorter than its header")]
    Short,
    /// The header promises other than what follows it.
    #[error("record holds {actual} payload bytes where its header says {captured} of {len}")]
    Length {
        /// What the header says was captured.
        captured: u32,
        /// What the header says it stands for.
        len: u32,
        /// What is there.
        actual: usize,
    },
    /// A discriminant that this version does not know.
    #[error("record has unknown {field} {value}")]
    Unknown {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u32,
    },
}

impl<'a> Event<'a> {
    /// Decodes one ring-buffer record: a header and the bytes it captured. Trailing bytes (the ring's size classes) are ignored.
    pub fn decode(record: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let header = RecordHeader::read(record).ok_or(DecodeError::Short)?;
        let payload = &record[HEADER_LEN..];
        if header.captured as usize > payload.len() || (header.captured > header.len && header.len != 0) {
            return Err(DecodeError::Length {
                captured: header.captured,
                len: header.len,
                actual: payload.len(),
            });
        }
        let bytes = &payload[..header.captured as usize];
        let unknown = |field| move |e: infertap_abi::UnknownValue| DecodeError::Unknown { field, value: e.0 };
        let kind = RecordKind::try_from(header.kind).map_err(unknown("kind"))?;
        let direction = Direction::try_from(header.direction_bits()).map_err(unknown("direction"))?;
        let socket = Socket {
            conn: ConnId(header.conn_id),
            tgid: header.tgid,
            tid: header.tid,
            fd: header.fd,
            transport: Transport::try_from(header.transport).map_err(unknown("transport"))?,
            role: Role::try_from(header.role_bits()).map_err(unknown("role"))?,
            late: header.flags & record_flag::LATE != 0,
        };
        let kind = match kind {
            RecordKind::Open => EventKind::Open(socket),
            RecordKind::Data => {
                if direction == Direction::None {
                    return Err(DecodeError::Unknown {
                        field: "direction",
                        value: 0,
                    });
                }
                if header.captured > header.len {
                    return Err(DecodeError::Length {
                        captured: header.captured,
                        len: header.len,
                        actual: payload.len(),
                    });
                }
                EventKind::Data {
                    socket,
                    direction,
                    offset: header.offset,
                    len: header.len,
                    bytes,
                    arrived: (header.flags & record_flag::ARRIVED != 0)
                        .then(|| header.ts_ns.saturating_sub(u64::from(header.extra) * 1000)),
                    dur_ns: header.dur_ns,
                    blocked: header.flags & record_flag::BLOCKED != 0,
                }
            }
            RecordKind::Eof => EventKind::Eof(socket),
            RecordKind::Shutdown => EventKind::Shutdown(socket),
            RecordKind::Error => EventKind::Error {
                socket,
                direction,
                errno: header.errno,
            },
            RecordKind::Stall => EventKind::Stall(socket),
            RecordKind::Close => EventKind::Close(Closed {
                socket,
                bytes_in: u64::from(header.len) | (u64::from(header.extra) << 32),
                bytes_out: header.offset,
                peer_gone: header.flags & record_flag::PEER_GONE != 0,
            }),
            RecordKind::FdUnknown => EventKind::FdUnknown(socket),
            RecordKind::Peer => EventKind::Peer {
                socket,
                address: peer(bytes).ok_or(DecodeError::Length {
                    captured: header.captured,
                    len: header.len,
                    actual: payload.len(),
                })?,
                offset: header.offset,
            },
            RecordKind::Exec => EventKind::Exec { tgid: header.tgid },
            RecordKind::Fork => EventKind::Fork {
                parent: header.fd,
                child: header.tgid,
            },
            RecordKind::Exit => EventKind::Exit { tgid: header.tgid },
            RecordKind::Call => EventKind::Call(call(&header, bytes)?),
            RecordKind::CudaBurst => EventKind::CudaBurst(gpu::burst(&header, bytes)?),
            RecordKind::CudaMemory => gpu::memory(&header, bytes)?,
        };
        Ok(Event {
            at: header.ts_ns,
            kind,
        })
    }

    /// The end of process `tgid` at `at`.
    pub fn process_exit(at: Nanos, tgid: u32) -> Event<'static> {
        Event {
            at,
            kind: EventKind::Exit { tgid },
        }
    }
}

fn peer(bytes: &[u8]) -> Option<IpAddr> {
    let address: [u8; PEER_LEN] = bytes.try_into().ok()?;
    Some(IpAddr::from(address).to_canonical())
}

fn call<'a>(header: &RecordHeader, payload: &'a [u8]) -> Result<Call<'a>, DecodeError> {
    let function = Function::try_from(header.fd).map_err(|e| DecodeError::Unknown {
        field: "function",
        value: e.0,
    })?;
    let (head, bytes) = payload
        .split_first_chunk::<CALL_HEAD>()
        .ok_or(DecodeError::Length {
            captured: header.captured,
            len: header.len,
            actual: payload.len(),
        })?;
    let mut args = [0; CALL_ARGS];
    for (arg, word) in args.iter_mut().zip(head.as_chunks().0) {
        *arg = u64::from_le_bytes(*word);
    }
    Ok(Call {
        tgid: header.tgid,
        tid: header.tid,
        function,
        begin: header.offset.min(header.ts_ns),
        end: header.ts_ns,
        args,
        ret: (header.flags & record_flag::ENTERED == 0).then_some(header.conn_id),
        bytes,
    })
}
