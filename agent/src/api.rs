//! Asking a running agent.
//!
//! Owns: one GET of its API, bounded in time and size. Refuses: TLS and other hosts' certificates: the API is on loopback,
//! or behind a proxy that is asked with other tools.

use anyhow::{Context as _, bail};
use hyper::body::{Body as _, Bytes};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For the connection and the whole answer.
const TIME: Duration = Duration::from_secs(30);
/// Largest answer.
const MAX_ANSWER: usize = 64 << 20;

/// The JSON that the agent at `address`, where it listens, answers to a path.
///
/// # Errors
/// There is none, or it refuses; with what to do.
pub(crate) fn get<T: serde::de::DeserializeOwned>(address: SocketAddr, path: &str) -> anyhow::Result<T> {
    read(address, &bytes(address, path)?)
}

/// What the agent answered.
///
/// # Errors
/// It is of another shape.
pub(crate) fn read<T: serde::de::DeserializeOwned>(address: SocketAddr, answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer).with_context(|| {
        format!("what listens at {address} answers otherwise than this version of infertap does; is it an older one?")
    })
}

/// The bytes that the agent at `address`, where it listens, answers to a path.
///
/// # Errors
/// There is none, or it refuses; with what to do.
pub(crate) fn bytes(address: SocketAddr, path: &str) -> anyhow::Result<Vec<u8>> {
    let address = reachable(address);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let (status, body) = runtime
        // The timer is made within the runtime.
        .block_on(async { timeout(TIME, ask(address, path)).await })
        .map_err(|_| anyhow::anyhow!("the agent at {address} does not answer"))??;
    if status != 200 {
        let told: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
        let told = told.as_ref().and_then(|told| told.get("error")?.as_str());
        bail!(
            "the agent at {address} answers {status}: {}",
            told.unwrap_or("nothing more")
        );
    }
    Ok(body)
}

/// An agent that listens on every address is asked on this host.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

async fn ask(address: SocketAddr, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
    let stream = TcpStream::connect(address).await.with_context(|| {
        format!(
            "no agent listens at {address}: start `infertap run`, or name its address with --agent (server.listen of \
             its configuration)"
        )
    })?;
    let broken = || format!("the agent at {address} broke the connection off");
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .with_context(broken)?;
    let connection = tokio::spawn(connection);
    let request = hyper::Request::get(path)
        .header(hyper::header::HOST, address.to_string())
        .body(String::new())?;
    let answer = sender.send_request(request).await.with_context(broken)?;
    let status = answer.status().as_u16();
    let mut body = pin!(answer.into_body());
    let mut bytes = Vec::new();
    while let Some(frame) = poll_fn(|context| body.as_mut().poll_frame(context)).await {
        let data: Bytes = frame.with_context(broken)?.into_data().unwrap_or_default();
        if bytes.len() + data.len() > MAX_ANSWER {
            bail!("the agent at {address} answers more than {MAX_ANSWER} bytes");
        }
        bytes.extend_from_slice(&data);
    }
    // Nothing more comes of it, whatever its end.
    connection.abort();
    Ok((status, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_there_is_told_with_what_to_do() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let error = get::<serde_json::Value>(address, "/").expect_err("nobody listens");
        assert!(error.to_string().contains("--agent"), "{error}");
        let everywhere = "0.0.0.0:9464".parse().expect("an address");
        assert_eq!(reachable(everywhere).to_string(), "127.0.0.1:9464");
        let everywhere = "[::]:9464".parse().expect("an address");
        assert_eq!(reachable(everywhere).to_string(), "[::1]:9464");
    }
}
