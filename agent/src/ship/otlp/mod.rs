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
mod receiver;
mod spans;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tls_tests;

pub use config::{OtlpConfig, OtlpProtocol};

use super::{Http, Outlets};
use grpc::OtlpGrpc;
use http::OtlpHttp;
use spans::Encoder;

/// Starts sending traces, where an endpoint is given.
///
/// # Errors
/// The endpoint is no URL that can be used.
pub(super) fn start(config: &OtlpConfig, host: &str, outlets: &mut Outlets) -> Result<(), String> {
    let link = config.link();
    if !link.on() {
        return Ok(());
    }
    let encoder = Encoder::new(config, host);
    let (limits, attempt) = (link.limits(), link.attempt());
    match config.protocol {
        OtlpProtocol::Http => outlets.add(Http::new(OtlpHttp::new(encoder), &link)?, limits, attempt),
        OtlpProtocol::Grpc => outlets.add(OtlpGrpc::new(encoder, link), limits, attempt),
    };
    Ok(())
}

/// As it comes, for the tests of what answers mean.
#[cfg(test)]
pub(super) fn over_http() -> impl super::HttpDestination {
    OtlpHttp::new(Encoder::new(&OtlpConfig::default(), "node-1"))
}
