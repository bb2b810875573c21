//! Traces over OTLP.
//!
//! Owns: spans of a record, both transports, what their answers mean. Refuses: queues, retries, TLS and credentials of HTTP
//! (the house's).

mod attributes;
mod config;
mod content;
mod grpc;
mod http;
mod ids;
mod links;
#[cfg(test)]
mod proxy_tests;
#[cfg(test)]
mod receiver;
mod spans;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

pub use config::{OtlpConfig, OtlpProtocol};

use super::Http;
use super::outlets::Planned;
use grpc::OtlpGrpc;
use http::OtlpHttp;
use spans::Encoder;

/// What traces are sent with.
///
/// # Errors
/// The endpoint is no URL that can be used.
pub(super) fn plan(config: &OtlpConfig, host: &str) -> Result<Planned, String> {
    let link = config.link();
    let encoder = Encoder::new(config, host);
    let (limits, attempt) = (link.limits(), link.attempt());
    Ok(match config.protocol {
        OtlpProtocol::Http => Planned::new(Http::new(OtlpHttp::new(encoder), &link)?, limits, attempt),
        OtlpProtocol::Grpc => Planned::new(OtlpGrpc::new(encoder, link), limits, attempt),
    })
}

/// Starts sending traces.
#[cfg(test)]
fn start(config: &OtlpConfig, host: &str, outlets: &super::Outlets) -> Result<(), String> {
    outlets.put(None, plan(config, host)?);
    Ok(())
}

/// As it comes, for the tests of what answers mean.
#[cfg(test)]
pub(super) fn over_http() -> impl super::HttpDestination {
    OtlpHttp::new(Encoder::new(&OtlpConfig::default(), "node-1"))
}

/// The same over gRPC.
#[cfg(test)]
fn over_grpc(config: &OtlpConfig) -> impl super::Destination {
    OtlpGrpc::new(Encoder::new(config, "node-1"), config.link())
}
