//! The façade: one event in, observations out; all state bounded.
//!
//! Owns: routing of events to connections and of processes to engines, limits and eviction. Refuses: I/O and clocks;
//! time arrives with the events.
//!
//! Only connections that the process accepted are read. What it connected to, and pairs of sockets within it, are told as
//! [`Observation::Ignore`]: an engine's own processes are read where the API server accepts them, so no message counts
//! twice.

mod calls;
mod config;
mod dropped;
mod end;
mod gpu;
mod memory;

pub use config::{PipelineConfig, PipelineStats};

use crate::{
    Anomaly, EngineKind, Event, EventKind, Nanos, Observation,
    connection::{Connection, Verdict},
    context::{Anomalies, Context},
    count::Counting,
    diagnose::Peers,
    engines::Engines,
    event::{Closed, Socket},
    gateway::Gateways,
    gpu::Join,
    infer::Infer,
    inside::Inside,
    lru::LruMap,
    pods::Pods,
    prefix::Prefix,
    pressure::Pressure,
    slots::Slots,
    tokenize::Tokenizing,
};
use dropped::Dropped;
use infertap_abi::Direction;

#[derive(Debug)]
enum Entry {
    Read(Box<Connection>),
    /// Told as ignored.
    Ignored,
}

/// The core's façade.
#[derive(Debug)]
pub struct Pipeline {
    config: PipelineConfig,
    connections: LruMap<Tracked>,
    engines: Engines,
    inside: Inside,
    peers: Peers,
    slots: Slots,
    tokenizing: Tokenizing,
    infer: Infer,
    gpu: Join,
    pressure: Pressure,
    counting: Counting,
    prefix: Prefix,
    gateways: Gateways,
    pods: Pods,
    anomalies: Anomalies,
    in_flight: usize,
    ignored: usize,
    state_bytes: usize,
    /// Slots with tokens that were not told yet.
    unflushed: Vec<usize>,
    dropped: Dropped,
}

#[derive(Debug)]
struct Tracked {
    last_active: Nanos,
    entry: Entry,
}

impl Pipeline {
    /// An empty pipeline.
    pub fn new(config: PipelineConfig) -> Pipeline {
        Pipeline {
            prefix: Prefix::new(config.prefix),
            pods: Pods::new(config.max_pods),
            config,
            connections: LruMap::new(),
            engines: Engines::default(),
            inside: Inside::default(),
            peers: Peers::default(),
            slots: Slots::default(),
            tokenizing: Tokenizing::default(),
            infer: Infer::default(),
            gpu: Join::default(),
            pressure: Pressure::default(),
            counting: Counting::default(),
            gateways: Gateways::default(),
            anomalies: Anomalies::default(),
            in_flight: 0,
            ignored: 0,
            state_bytes: 0,
            unflushed: Vec::new(),
            dropped: Dropped::default(),
        }
    }

    /// Takes one event.
    pub fn handle(&mut self, event: Event<'_>, out: &mut Vec<Observation>) {
        let (at, seen) = (event.at, out.len());
        match event.kind {
            EventKind::Open(socket) => self.open(socket, at, out),
            EventKind::Data {
                socket,
                direction,
                offset,
                len,
                bytes,
                arrived,
                dur_ns,
                blocked,
            } => {
                let until = at.saturating_add(u64::from(dur_ns));
                if let Some(slot) = self.admit(socket, at, offset > 0, out) {
                    self.thread_read(socket, direction);
                    self.with(slot, &socket, at, until, out, |connection, context| {
                        // Before its bytes are taken, which may end the response.
                        if let (Direction::Out, Some(stalls)) = (direction, connection.pairing.stalls()) {
                            stalls.wrote(at, until, blocked);
                        }
                        context.arrived = arrived.unwrap_or(at);
                        connection.data(direction, offset, len, bytes, context)
                    });
                }
            }
            EventKind::Eof(socket) => self.control(socket, at, out, Connection::eof),
            EventKind::Shutdown(socket) => self.control(socket, at, out, Connection::shutdown),
            EventKind::Error {
                socket,
                direction,
                errno,
            } => self.control(socket, at, out, |connection, context| {
                connection.error(direction, errno, context)
            }),
            EventKind::Close(closed) => {
                if let Some(slot) = self.connections.slot(closed.socket.conn) {
                    self.end(slot, at, out, |connection, context| {
                        connection.close(&closed, context);
                    });
                }
                self.dropped.forget(closed.socket.conn);
            }
            EventKind::Stall(socket) => self.control(socket, at, out, |connection, _| {
                if let Some(stalls) = connection.pairing.stalls() {
                    stalls.refused(at);
                }
                Verdict::Keep
            }),
            EventKind::Peer {
                socket,
                address,
                offset,
            } => {
                if let Some(slot) = self.admit(socket, at, offset > 0, out)
                    && let Some((_, tracked)) = self.connections.get_mut(slot)
                    && let Entry::Read(connection) = &mut tracked.entry
                {
                    connection.peer = Some(address);
                }
            }
            // The descriptor is the agent's business.
            EventKind::FdUnknown(_) | EventKind::Exec { .. } | EventKind::CudaMapping(_) => {}
            EventKind::Gpu(reading) => {
                self.join_gpu(at, &reading);
                self.gpu_read(at, &reading);
            }
            EventKind::CudaBurst(burst) => {
                self.cuda_burst(burst);
                self.pressure
                    .cuda(burst.tgid, &self.engines, &self.config.pressure);
            }
            EventKind::AllocFailure(failure) => self.alloc_failed(at, &failure),
            EventKind::Memory(reading) => self.memory_read(at, &reading, out),
            EventKind::Pod(change) => self.pods.apply(change),
            EventKind::Counted(counted) => self.counting.counted(counted, out),
            EventKind::Call(call) => self.call(&call, out),
            EventKind::Fork { parent, child } => {
                if !self.engines.fork(parent, child) {
                    self.anomalies.add(Anomaly::Evicted);
                }
            }
            EventKind::Exit { tgid } => {
                self.server_died(&[tgid], at, out);
                self.engines.exit(tgid);
                self.slots.exit(tgid);
            }
            EventKind::EngineUp(engine) => {
                if engine.kind == EngineKind::Gateway {
                    self.gateways.up(&engine.id);
                }
                if !self.engines.up(engine) {
                    self.anomalies.add(Anomaly::Evicted);
                }
            }
            EventKind::EngineDown { engine } => self.engine_down(&engine, at, out),
        }
        self.gpu.observed(at, out.get(seen..).unwrap_or_default());
        self.tell_anomalies(out);
    }

    /// Time has passed: expires what has gone stale, flushes token counts. Call it about every 100 ms.
    pub fn advance(&mut self, now: Nanos, out: &mut Vec<Observation>) {
        for slot in std::mem::take(&mut self.unflushed) {
            if let Some((
                _,
                Tracked {
                    entry: Entry::Read(connection),
                    ..
                },
            )) = self.connections.get_mut(slot)
            {
                connection.unflushed = false;
                connection.flush(out);
            }
        }
        while let Some(slot) = self.connections.oldest() {
            let stale = match self.connections.get_mut(slot) {
                Some((_, tracked)) => tracked.last_active.saturating_add(self.config.idle_timeout_ns) <= now,
                None => false,
            };
            if !stale {
                break;
            }
            self.drop_connection(slot, now, out, Connection::expire);
        }
        let seen = out.len();
        self.inside.advance(now, out);
        self.peers.advance(now, out);
        self.slots.advance(now, out);
        self.tokenizing.advance(now, out);
        self.advance_gpu(now, seen, out);
        self.judge_memory(now, out);
        self.counting.advance(now, out);
        self.prefix.advance(now, out);
        self.gateways.advance(now, out);
        self.tell_anomalies(out);
    }

    /// Nothing more will come: records that wait for a count are told without it, and what waits to be told is.
    pub fn settle(&mut self, out: &mut Vec<Observation>) {
        self.counting.advance(Nanos::MAX, out);
        self.prefix.advance(Nanos::MAX, out);
        self.gateways.finish(out);
    }

    /// What it holds.
    pub fn stats(&self) -> PipelineStats {
        PipelineStats {
            connections: self.connections.len() - self.ignored,
            ignored: self.ignored,
            in_flight: self.in_flight,
            state_bytes: self.state_bytes
                + self.connections.len() * (size_of::<Tracked>() + 4 * size_of::<usize>())
                + self.dropped.bytes()
                + self.inside.bytes()
                + self.peers.bytes()
                + self.slots.bytes()
                + self.tokenizing.bytes()
                + self.infer.bytes()
                + self.pressure.bytes()
                + self.gpu.bytes()
                + self.counting.bytes()
                + self.prefix.bytes()
                + self.gateways.bytes()
                + self.pods.bytes(),
            pods: self.pods.stats(),
        }
    }

    /// The engine that a process is of.
    pub fn engine_of(&self, tgid: u32) -> Option<std::sync::Arc<str>> {
        self.engines
            .of(tgid)
            .map(|engine| std::sync::Arc::clone(&engine.id))
    }

    fn open(&mut self, socket: Socket, at: Nanos, out: &mut Vec<Observation>) {
        // An id that is opened again can only be one whose end was lost.
        if let Some(slot) = self.connections.slot(socket.conn) {
            let closed = Closed {
                socket,
                bytes_in: 0,
                bytes_out: 0,
                peer_gone: false,
            };
            self.end(slot, at, out, |connection, context| {
                connection.close(&closed, context);
            });
        }
        self.admit(socket, at, false, out);
    }

    /// The slot of a connection, made when it is new; `None` when it is ignored.
    fn admit(&mut self, socket: Socket, at: Nanos, begun: bool, out: &mut Vec<Observation>) -> Option<usize> {
        if let Some(slot) = self.connections.slot(socket.conn) {
            self.connections.touch(slot);
            let (_, tracked) = self.connections.get_mut(slot)?;
            tracked.last_active = at.max(tracked.last_active);
            return matches!(tracked.entry, Entry::Read(_)).then_some(slot);
        }
        while self.connections.len() >= self.config.max_connections.max(1) {
            self.evict_oldest(at, out);
        }
        let swallow = self.dropped.forget(socket.conn);
        let joined = socket.late || begun || swallow;
        let connection = Connection::new(socket, joined, swallow);
        let ignored = connection.is_none();
        let entry = connection.map_or(Entry::Ignored, |connection| Entry::Read(Box::new(connection)));
        let slot = self.connections.insert(
            socket.conn,
            Tracked {
                last_active: at,
                entry,
            },
        );
        if ignored {
            self.ignored += 1;
            out.push(Observation::Ignore(socket.conn));
            return None;
        }
        Some(slot)
    }

    fn control(
        &mut self,
        socket: Socket,
        at: Nanos,
        out: &mut Vec<Observation>,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> Verdict,
    ) {
        // Of a connection that was never seen there is nothing to end.
        if let Some(slot) = self.connections.slot(socket.conn) {
            self.connections.touch(slot);
            self.with(slot, &socket, at, at, out, act);
        }
    }

    /// Lets a connection act on an event, and settles what follows from it.
    fn with(
        &mut self,
        slot: usize,
        socket: &Socket,
        at: Nanos,
        until: Nanos,
        out: &mut Vec<Observation>,
        act: impl FnOnce(&mut Connection, &mut Context<'_>) -> Verdict,
    ) {
        let Some((conn, tracked)) = self.connections.get_mut(slot) else {
            return;
        };
        tracked.last_active = tracked.last_active.max(at);
        let Entry::Read(connection) = &mut tracked.entry else {
            return;
        };
        if connection.engine_epoch != self.engines.epoch() || connection.tgid != socket.tgid {
            connection.tgid = socket.tgid;
            connection.engine = self.engines.of(socket.tgid);
            connection.engine_epoch = self.engines.epoch();
        }
        // Out of the connection while it acts, which spares a count of references for every event.
        let engine = connection.engine.take();
        let mut context = Context {
            at,
            arrived: at,
            until,
            conn,
            tgid: socket.tgid,
            tid: socket.tid,
            peer: connection.peer,
            engine: engine.as_deref(),
            pods: &self.pods,
            config: &self.config,
            out,
            anomalies: &mut self.anomalies,
            inside: &mut self.inside,
            peers: &mut self.peers,
            slots: &mut self.slots,
            tokenizing: &mut self.tokenizing,
            infer: &mut self.infer,
            gpu: &mut self.gpu,
            pressure: &mut self.pressure,
            counting: &mut self.counting,
            prefix: &mut self.prefix,
            gateways: &mut self.gateways,
            in_flight: &mut self.in_flight,
            unflushed: false,
        };
        let verdict = act(connection, &mut context);
        let unflushed = context.unflushed;
        connection.engine = engine;
        if unflushed && !connection.unflushed {
            connection.unflushed = true;
            self.unflushed.push(slot);
        }
        let bytes = connection.estimate_bytes();
        self.state_bytes = self.state_bytes + bytes - connection.bytes;
        connection.bytes = bytes;
        if verdict == Verdict::Ignore {
            self.state_bytes -= bytes;
            tracked.entry = Entry::Ignored;
            self.ignored += 1;
            out.push(Observation::Ignore(conn));
        }
        while self.state_bytes > self.config.max_state_bytes && self.connections.len() > 1 {
            self.evict_oldest(at, out);
        }
    }
}
