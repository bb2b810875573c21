//! Blanking: a record's text content is replaced, in place and byte for byte, before anything is written.
//!
//! Owns: the connections' states. What comes out has the length of what went in and parses to the same requests: same
//! framing, tokens, chunks, statuses, models and ids. Refuses: letting through anything that is not known to be harmless;
//! a byte whose place is uncertain is blanked.

mod addresses;
mod body;
mod head;
mod json;
mod link;
mod marks;
mod members;
mod packed;
mod side;
mod sse;
#[cfg(test)]
mod tests;
mod words;

use addresses::Addresses;
use infertap_abi::{Direction, HEADER_LEN, RecordHeader, RecordKind, Role, Transport, record_flag};
use infertap_core::wire::zmtp;
use infertap_core::{EngineInfo, EngineKind, Engines};
use link::Link;
use marks::Told;
use side::Side;
use std::collections::HashMap;
use std::sync::Arc;

/// Connections whose place is kept; past it the least recently active quarter is forgotten, and blanked whole until
/// a message begins.
const MAX_CONNECTIONS: usize = 16_384;

/// Blanks raw records in the order in which they are to be written.
#[derive(Debug, Default)]
pub struct Blanker {
    connections: HashMap<u64, Connection>,
    clock: u64,
    /// Whose layouts the messages between an engine's processes have.
    engines: Engines,
    addresses: Addresses,
}

#[derive(Debug, Default)]
struct Connection {
    input: Option<Side>,
    output: Option<Side>,
    /// It is between an engine's own processes, and no HTTP.
    link: Option<Box<Link>>,
    /// Some of its bytes were seen.
    begun: bool,
    used: u64,
}

impl Blanker {
    /// A blanker that has seen no connection.
    pub fn new() -> Blanker {
        Blanker::default()
    }

    /// Discovery found an engine, or learned more about one.
    pub fn engine_up(&mut self, engine: Arc<EngineInfo>) {
        self.engines.up(engine);
    }

    /// An engine is gone.
    pub fn engine_down(&mut self, engine: &str) {
        self.engines.down(engine);
    }

    /// Blanks one record in place: a [`RecordHeader`] and the bytes that it says were captured. A record that does not
    /// hold together loses all its bytes, and so does what follows the captured ones.
    pub fn blank(&mut self, record: &mut [u8]) {
        let Some(header) = RecordHeader::read(record) else {
            record.fill(0);
            return;
        };
        let payload = &mut record[HEADER_LEN..];
        let captured = header.captured as usize;
        let kind = RecordKind::try_from(header.kind);
        if captured > payload.len() || (kind == Ok(RecordKind::Data) && header.captured > header.len) {
            payload.fill(0);
            return;
        }
        payload[captured..].fill(0);
        let payload = &mut payload[..captured];
        match (kind, Direction::try_from(header.direction_bits())) {
            (Ok(RecordKind::Data), Ok(direction @ (Direction::In | Direction::Out))) => {
                self.data(&header, direction, payload);
            }
            (Ok(RecordKind::Close), _) => {
                self.connections.remove(&header.conn_id);
                payload.fill(0);
            }
            (Ok(RecordKind::Fork), _) => {
                self.engines.fork(header.fd, header.tgid);
                payload.fill(0);
            }
            (Ok(RecordKind::Exit), _) => {
                self.engines.exit(header.tgid);
                payload.fill(0);
            }
            (Ok(RecordKind::Peer), _) => self.addresses.blank(payload),
            // The name of a program; and of a call numbers alone: arguments, addresses, ids, counts. A function that captures
            // text must be blanked here.
            (Ok(RecordKind::Exec | RecordKind::Call | RecordKind::CudaBurst | RecordKind::CudaMemory), _) => {
            }
            _ => payload.fill(0),
        }
    }

    fn data(&mut self, header: &RecordHeader, direction: Direction, payload: &mut [u8]) {
        if self.connections.len() >= MAX_CONNECTIONS && !self.connections.contains_key(&header.conn_id) {
            self.forget_a_quarter();
        }
        self.clock += 1;
        let connection = self.connections.entry(header.conn_id).or_default();
        connection.used = self.clock;
        let engine = self.engines.of(header.tgid);
        connection.settle(header, direction, payload, engine.as_deref());
        if let Some(link) = &mut connection.link {
            let version = engine.as_ref().and_then(|engine| engine.version.as_deref());
            link.piece(direction, header.offset, u64::from(header.len), payload, version);
            return;
        }
        let (side, other) = match direction {
            Direction::In => (&mut connection.input, &mut connection.output),
            _ => (&mut connection.output, &mut connection.input),
        };
        let side = side.get_or_insert_with(|| {
            let late = header.flags & record_flag::LATE != 0 || header.offset > 0;
            let mut side = Side::new(carries_requests(header, direction, payload), late);
            side.begin_at(header.offset);
            side
        });
        let requests = side.carries_requests();
        let Told { methods, upgraded } = side.piece(header.offset, u64::from(header.len), payload);
        if methods.is_empty() && !upgraded {
            return;
        }
        let other = other.get_or_insert_with(|| {
            let late = header.flags & record_flag::LATE != 0;
            Side::new(!requests, late)
        });
        for method in &methods {
            other.expect(method);
        }
        if upgraded {
            other.close();
        }
    }

    fn forget_a_quarter(&mut self) {
        let mut used: Vec<u64> = self.connections.values().map(|c| c.used).collect();
        let quarter = used.len() / 4;
        let (_, bound, _) = used.select_nth_unstable(quarter);
        let bound = *bound;
        self.connections.retain(|_, connection| connection.used > bound);
    }
}

impl Connection {
    /// What the first bytes make of it, judged as the core does. Joined in the middle of a message they may mislead; the
    /// start of an HTTP message then sets that right, as long as nothing else was understood.
    fn settle(
        &mut self,
        header: &RecordHeader,
        direction: Direction,
        bytes: &[u8],
        engine: Option<&EngineInfo>,
    ) {
        let http = match direction {
            Direction::In => side::begins_request(bytes),
            _ => bytes.starts_with(b"HTTP/1."),
        };
        if http && self.link.as_ref().is_some_and(|link| link.is_unproven()) {
            self.link = None;
            return;
        }
        if self.begun || bytes.is_empty() {
            return;
        }
        self.begun = true;
        let accepted = Role::try_from(header.role_bits()) == Ok(Role::Accepted);
        if !accepted || engine.map(|engine| engine.kind) != Some(EngineKind::Vllm) {
            return;
        }
        let joined = header.flags & record_flag::LATE != 0 || header.offset > 0;
        let unix = Transport::try_from(header.transport) == Ok(Transport::Unix);
        if (joined && unix && !http) || (!joined && zmtp::is_signature(bytes)) {
            self.link = Some(Box::new(Link::new(joined)));
        }
    }
}

/// Which way the requests go: into a process that accepted the connection, out of one that made it. Where that is not
/// known the first bytes tell.
fn carries_requests(header: &RecordHeader, direction: Direction, first: &[u8]) -> bool {
    match Role::try_from(header.role_bits()) {
        Ok(Role::Accepted | Role::Listen) => direction == Direction::In,
        Ok(Role::Connected) => direction == Direction::Out,
        _ if first.starts_with(b"HTTP/") => false,
        _ => direction == Direction::In,
    }
}
