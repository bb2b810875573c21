//! What the handling of one event may touch outside of its connection.
//!
//! Owns: the bundle, and the counting of anomalies until they are told. Refuses: state that outlives the event.

use crate::{
    Anomaly, EngineInfo, Nanos, Observation, PipelineConfig, client::Client, count::Counting,
    diagnose::Peers, event::ConnId, gateway::Gateways, gpu::Join, infer::Infer, inside::Inside, pods::Pods,
    prefix::Prefix, pressure::Pressure, slots::Slots, tokenize::Tokenizing,
};
use std::net::IpAddr;

/// Anomalies since they were last told: a malformed event may hold thousands.
#[derive(Debug, Default)]
pub(crate) struct Anomalies {
    counts: [u64; Anomaly::ALL.len()],
    any: bool,
}

impl Anomalies {
    pub(crate) fn add(&mut self, kind: Anomaly) {
        // `ALL` is in declaration order.
        self.counts[kind as usize] += 1;
        self.any = true;
    }

    /// Moves the counts to `out`.
    pub(crate) fn tell(&mut self, out: &mut Vec<Observation>) {
        if !std::mem::take(&mut self.any) {
            return;
        }
        for kind in Anomaly::ALL {
            let count = std::mem::take(&mut self.counts[kind as usize]);
            if count > 0 {
                out.push(Observation::Anomaly { kind, count });
            }
        }
    }
}

/// The event's time, the connection's surroundings, and where observations go.
pub(crate) struct Context<'a> {
    /// When the event happened (a write: began).
    pub(crate) at: Nanos,
    /// When the bytes that were read had reached the socket, where that is known; else `at`.
    pub(crate) arrived: Nanos,
    /// When it was over.
    pub(crate) until: Nanos,
    pub(crate) conn: ConnId,
    /// The process.
    pub(crate) tgid: u32,
    /// The thread; 0 where none acted.
    pub(crate) tid: u32,
    /// The other end of the connection, where that is known.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) engine: Option<&'a EngineInfo>,
    pub(crate) pods: &'a Pods,
    pub(crate) config: &'a PipelineConfig,
    pub(crate) out: &'a mut Vec<Observation>,
    pub(crate) anomalies: &'a mut Anomalies,
    pub(crate) inside: &'a mut Inside,
    pub(crate) peers: &'a mut Peers,
    pub(crate) slots: &'a mut Slots,
    pub(crate) tokenizing: &'a mut Tokenizing,
    pub(crate) infer: &'a mut Infer,
    pub(crate) gpu: &'a mut Join,
    pub(crate) pressure: &'a mut Pressure,
    pub(crate) counting: &'a mut Counting,
    pub(crate) prefix: &'a mut Prefix,
    pub(crate) gateways: &'a mut Gateways,
    /// Requests that were told as started and not yet as finished.
    pub(crate) in_flight: &'a mut usize,
    /// Set when tokens were counted that were not told yet.
    pub(crate) unflushed: bool,
}

impl Context<'_> {
    /// Who sends a request with these headers; `None` where its head was not seen.
    pub(crate) fn client(&self, headers: Option<&[(String, String)]>) -> Client {
        let address = self.config.proxies.client(self.peer, headers);
        Client {
            pod: address.and_then(|address| self.pods.of(address)).cloned(),
            address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_anomaly_has_its_own_count() {
        let mut anomalies = Anomalies::default();
        for (times, kind) in Anomaly::ALL.iter().enumerate() {
            for _ in 0..times {
                anomalies.add(*kind);
            }
        }
        let mut out = Vec::new();
        anomalies.tell(&mut out);
        let told: Vec<_> = out
            .iter()
            .map(|o| match o {
                Observation::Anomaly { kind, count } => (*kind, *count),
                other => panic!("{other:?}"),
            })
            .collect();
        let expected: Vec<_> = Anomaly::ALL.iter().copied().zip(0..).skip(1).collect();
        assert_eq!(told, expected);
        anomalies.tell(&mut out);
        assert_eq!(out.len(), told.len(), "told once");
    }
}
