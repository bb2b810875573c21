//! Whether destinations can be reached, for `infertap doctor`.
//!
//! Owns: trying to connect, and reading the files that the agent would read. Refuses: sending anything.

use super::{LinkConfig, link, tls};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// Time for one address.
const CONNECT: Duration = Duration::from_secs(2);
/// Addresses of a host that are tried.
const ADDRESSES: usize = 4;

/// Where it would connect to; else why it could not. Blocks for seconds where nobody answers.
///
/// # Errors
/// The endpoint is no URL, nobody listens there, or a file can't be used.
pub fn reach(link: &LinkConfig) -> Result<String, String> {
    let url = link::endpoint(&link.endpoint)?;
    link.request_headers()?;
    if url.scheme() == "https" {
        tls::client(link)?;
    }
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let found = (host, port)
        .to_socket_addrs()
        .map_err(|error| format!("{host} has no address: {error}"))?;
    let mut why = format!("{host} has no address");
    for address in found.take(ADDRESSES) {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(_) => return Ok(format!("{host} port {port} can be connected to")),
            Err(error) => why = format!("{host} port {port} can't be connected to: {error}"),
        }
    }
    Err(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ship::otlp::OtlpConfig;

    #[test]
    fn who_listens_is_reached_and_files_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let port = listener.local_addr().expect("an address").port();
        let mut config = OtlpConfig {
            endpoint: format!("http://127.0.0.1:{port}"),
            ..OtlpConfig::default()
        };
        let reached = reach(&config.link()).expect("somebody listens");
        assert_eq!(reached, format!("127.0.0.1 port {port} can be connected to"));
        config.bearer_token_file = "/nowhere/token".into();
        let why = reach(&config.link()).expect_err("no token");
        assert!(why.contains("/nowhere/token"), "{why}");
        config.bearer_token_file = "".into();
        drop(listener);
        let why = reach(&config.link()).expect_err("nobody listens");
        assert!(why.contains("can't be connected to"), "{why}");
    }
}
