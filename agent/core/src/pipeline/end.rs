//! Ends of connections: closed, expired, evicted, or with their process.
//!
//! Owns: letting a connection act for the last time, and giving back what it held. Refuses: when (`pipeline`).

use super::{Entry, Pipeline, Tracked};
use crate::{Anomaly, Nanos, Observation, connection::Connection, context::Context};

impl Pipeline {
    /// Lets a connection act for the last time.
    pub(super) fn end(
        &mut self,
        slot: usize,
        at: Nanos,
        out: &mut Vec<Observation>,
        act: impl FnOnce(&mut Connection, &mut Context<'_>),
    ) {
        let Some((conn, tracked)) = self.connections.remove(slot) else {
            return;
        };
        let Entry::Read(mut connection) = tracked.entry else {
            self.ignored -= 1;
            return;
        };
        self.state_bytes -= connection.bytes;
        let tgid = connection.tgid;
        let peer = connection.peer;
        let engine = match self.engines.of(tgid) {
            Some(engine) => Some(engine),
            None => connection.engine.take(),
        };
        act(
            &mut connection,
            &mut Context {
                at,
                arrived: at,
                until: at,
                conn,
                tgid,
                tid: 0,
                peer,
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
            },
        );
    }

    /// Drops a connection that may still carry bytes.
    pub(super) fn drop_connection(
        &mut self,
        slot: usize,
        at: Nanos,
        out: &mut Vec<Observation>,
        act: impl FnOnce(&mut Connection, &mut Context<'_>),
    ) {
        let Some((conn, tracked)) = self.connections.get_mut(slot) else {
            return;
        };
        if let Entry::Read(connection) = &tracked.entry
            && !connection.is_idle()
        {
            self.dropped.remember(conn);
        }
        self.end(slot, at, out, act);
    }

    /// Tells what did not fit since it was last told.
    pub(super) fn tell_anomalies(&mut self, out: &mut Vec<Observation>) {
        for _ in 0..self.gateways.take_evicted() {
            self.anomalies.add(Anomaly::Evicted);
        }
        self.anomalies.tell(out);
    }

    /// All processes of an engine are gone.
    pub(super) fn engine_down(&mut self, engine: &str, at: Nanos, out: &mut Vec<Observation>) {
        let tgids = self.engines.tgids(engine);
        self.server_died(&tgids, at, out);
        for tgid in tgids {
            self.slots.exit(tgid);
        }
        self.engines.down(engine);
        self.gateways.down(engine);
        self.inside.down(engine, out);
        self.peers.down(engine);
        self.tokenizing.down(engine);
        self.infer.down(engine);
        self.gpu.down(engine, at);
        self.pressure.down(engine);
    }

    pub(super) fn evict_oldest(&mut self, at: Nanos, out: &mut Vec<Observation>) {
        if let Some(slot) = self.connections.oldest() {
            if let Some((
                _,
                Tracked {
                    entry: Entry::Read(_),
                    ..
                },
            )) = self.connections.get_mut(slot)
            {
                self.anomalies.add(Anomaly::Evicted);
            }
            self.drop_connection(slot, at, out, Connection::evict);
        }
    }

    pub(super) fn server_died(&mut self, tgids: &[u32], at: Nanos, out: &mut Vec<Observation>) {
        let slots: Vec<usize> = self
            .connections
            .slots()
            .filter(|(_, tracked)| matches!(&tracked.entry, Entry::Read(c) if tgids.contains(&c.tgid)))
            .map(|(slot, _)| slot)
            .collect();
        for slot in slots {
            self.end(slot, at, out, Connection::server_died);
        }
    }
}
