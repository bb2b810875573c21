//! What gateways add to requests, as Prometheus metrics.
//!
//! Owns: these families and the cap on their label. Refuses: what is a gateway's and what an engine's (the core's
//! `gateway`). None of this counts as a request of an engine.

use super::{
    catalog, counter_vec,
    histogram::{HistogramFamily, lock},
    labels::Capper,
};
use infertap_core::gateway::{GatewayExchange, GatewayPart};
use prometheus::{IntCounterVec, Registry};
use std::sync::{Arc, Mutex};

/// Gateways that have series of their own; a host has a few.
const MOST: usize = 64;

/// Upper bounds: what a gateway adds is mostly below a millisecond, but may be a queue of its own.
const BUCKETS: &[f64] = &[
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

pub(super) struct GatewayMetrics {
    requests: IntCounterVec,
    seconds: HistogramFamily,
    names: Mutex<Capper>,
}

impl GatewayMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<GatewayMetrics> {
        let seconds = HistogramFamily::new(catalog::GATEWAY_SECONDS, BUCKETS)?;
        registry.register(Box::new(seconds.clone()))?;
        Ok(GatewayMetrics {
            requests: counter_vec(registry, catalog::GATEWAY_REQUESTS)?,
            seconds,
            names: Mutex::new(Capper::new(MOST)),
        })
    }

    /// A gateway served a request.
    pub(super) fn served(&self, exchange: &GatewayExchange) {
        let name = lock(&self.names).admit(&exchange.gateway).value;
        let labels = [&*name, exchange.status.as_str(), exchange.outcome.as_str()];
        self.requests.with_label_values(&labels).inc();
    }

    /// A request of an engine came by way of a gateway.
    pub(super) fn joined(&self, part: &GatewayPart) {
        let name = lock(&self.names).admit(&part.name).value;
        for (phase, seconds) in [("before", part.before_s), ("after", part.after_s)] {
            if let Some(seconds) = seconds {
                let child = self.seconds.child(&[Arc::clone(&name), phase.into()]);
                child.observe(seconds, 1, None);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::{Format, Metrics, MetricsConfig};
    use infertap_core::{
        Observation, Status, TraceSource,
        gateway::{GatewayExchange, GatewayOutcome, GatewayPart, Joined, JoinedBy},
    };

    /// The part of a gateway in the request with this number.
    pub(crate) fn joined(request: u64) -> Joined {
        Joined {
            request,
            part: GatewayPart {
                id: "00000000000000aa".to_owned(),
                name: "nginx-8080".into(),
                parent_span_id: Some("00f067aa0ba902b7".to_owned()),
                joined_by: JoinedBy::Response,
                status: Status::Ok,
                http_status: Some(200),
                t0_ns: Some(1_000_000_000),
                first_byte_ns: Some(1_500_000_000),
                t4_ns: Some(3_000_000_000),
                before_s: Some(0.25),
                after_s: Some(0.5),
            },
            trace: None,
        }
    }

    /// An exchange of a gateway, and its part in a request.
    pub(crate) fn told() -> [Observation; 2] {
        let part = joined(1).part;
        let exchange = GatewayExchange {
            id: part.id,
            gateway: part.name,
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            trace_source: TraceSource::Traceparent,
            parent_span_id: part.parent_span_id,
            response_id: None,
            model: "m".into(),
            protocol: "openai_chat".to_owned(),
            status: part.status,
            http_status: part.http_status,
            t0_ns: part.t0_ns,
            first_byte_ns: part.first_byte_ns,
            t4_ns: part.t4_ns,
            outcome: GatewayOutcome::Joined,
        };
        [
            Observation::Joined(Box::new(joined(1))),
            Observation::Gateway(Box::new(exchange)),
        ]
    }

    #[test]
    fn gateways_have_metrics_of_their_own() {
        let metrics = Metrics::for_replay(&MetricsConfig::default()).expect("sound");
        metrics.apply_all(&told());
        let text = metrics.encode(Format::Text).expect("encodes");
        for line in [
            "llm_gateway_requests_total{engine=\"joined\",gateway=\"nginx-8080\",status=\"ok\"} 1",
            "llm_gateway_seconds_sum{gateway=\"nginx-8080\",phase=\"before\"} 0.25",
            "llm_gateway_seconds_sum{gateway=\"nginx-8080\",phase=\"after\"} 0.5",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("llm_requests_total"));
    }
}
