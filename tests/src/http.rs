//! A small HTTP/1.1 GET, for readiness, metrics and the agent's API.
//!
//! Owns: one request on a connection of its own. Refuses: everything that the load client does.

use crate::scripted::Address;
use anyhow::{Context, Result};

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status.
    pub status: u16,
    /// Body, framing removed.
    pub body: String,
}

impl Response {
    /// The body as JSON.
    pub fn json(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {}", self.body))
    }
}

/// `GET path`, accepting plain text.
pub fn get(address: &Address, path: &str) -> Result<Response> {
    get_accepting(address, path, "*/*")
}

/// `GET path` with an `Accept` header.
pub fn get_accepting(address: &Address, path: &str, accept: &str) -> Result<Response> {
    let socket = address
        .connect()
        .with_context(|| format!("can't connect to {address}"))?;
    socket.set_read_timeout(20)?;
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes())?;
    let (mut all, mut part) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match socket.read(&mut part)? {
            0 => break,
            n => all.extend_from_slice(&part[..n]),
        }
    }
    parse(&all).with_context(|| format!("http://{address}{path}"))
}

/// `POST path` with a JSON body; waits up to ten minutes for the response.
pub fn post(address: &Address, path: &str, body: &str) -> Result<Response> {
    let socket = address
        .connect()
        .with_context(|| format!("can't connect to {address}"))?;
    socket.set_read_timeout(600)?;
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes())?;
    let (mut all, mut part) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match socket.read(&mut part)? {
            0 => break,
            n => all.extend_from_slice(&part[..n]),
        }
    }
    parse(&all).with_context(|| format!("http://{address}{path}"))
}

fn parse(all: &[u8]) -> Result<Response> {
    let end = all
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .context("no response head")?;
    let head = String::from_utf8_lossy(&all[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .context("no status")?;
    let chunked = head
        .lines()
        .any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
    let body = if chunked {
        dechunk(&all[end + 4..])?
    } else {
        all[end + 4..].to_vec()
    };
    Ok(Response {
        status,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

fn dechunk(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|w| w == b"\r\n").context("cut chunk")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line])?, 16).context("bad chunk")?;
        if size == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(line + 2..line + 2 + size).context("cut chunk")?);
        rest = rest.get(line + 2 + size + 2..).context("cut chunk")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_either_framing() {
        let plain = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!((plain.status, plain.body.as_str()), (200, "ok"));
        let chunked =
            b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let chunked = parse(chunked).unwrap();
        assert_eq!((chunked.status, chunked.body.as_str()), (503, "abcde"));
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
    }
}
