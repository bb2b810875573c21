//! Dialogues that are not HTTP/1.1: what a watched socket may carry besides.
//!
//! Owns: both sides of each dialogue, byte for byte. Refuses: the protocols' meaning; the bytes are shaped well enough
//! that a decoder which guesses from first bytes meets what it would meet in the field.

use super::Socket;
use anyhow::{Result, bail};
use std::{io, str::FromStr};

/// Which dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Random bytes both ways.
    Urandom,
    /// A TLS 1.3 handshake and encrypted records.
    Tls,
    /// HTTP/2 with prior knowledge.
    Http2,
    /// Redis.
    Redis,
    /// PostgreSQL.
    Postgres,
}

impl Kind {
    /// Every dialogue.
    pub const ALL: [Kind; 5] = [Kind::Urandom, Kind::Tls, Kind::Http2, Kind::Redis, Kind::Postgres];

    /// Its name on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Urandom => "urandom",
            Kind::Tls => "tls",
            Kind::Http2 => "http2",
            Kind::Redis => "redis",
            Kind::Postgres => "postgres",
        }
    }
}

impl FromStr for Kind {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Kind> {
        match Kind::ALL.into_iter().find(|kind| kind.as_str() == text) {
            Some(kind) => Ok(kind),
            None => bail!("`{text}` is none of {}", Kind::ALL.map(Kind::as_str).join(", ")),
        }
    }
}

/// Who says a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It connected.
    Client,
    /// It accepted.
    Server,
}

/// Holds one side of a dialogue to its end. `seed` varies the random bytes; the lengths are always the same.
pub fn hold(socket: &Socket, side: Side, kind: Kind, seed: u64) -> io::Result<()> {
    let mut sink = vec![0; 64 * 1024];
    for (speaker, line) in dialogue(kind, seed) {
        if speaker == side {
            socket.write_all(&line)?;
            continue;
        }
        let mut left = line.len();
        while left > 0 {
            let limit = left.min(sink.len());
            match socket.read(&mut sink[..limit])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => left -= n,
            }
        }
    }
    Ok(())
}

fn dialogue(kind: Kind, seed: u64) -> Vec<(Side, Vec<u8>)> {
    use Side::{Client, Server};
    let mut random = Random(seed | 1);
    let mut lines = Vec::new();
    let mut say = |side, bytes: Vec<u8>| lines.push((side, bytes));
    match kind {
        Kind::Urandom => {
            for round in 0..16 {
                say(Client, random.bytes(1 + round * 977));
                say(Server, random.bytes(65_536));
            }
        }
        Kind::Tls => {
            say(
                Client,
                record(0x16, &[&[1, 0, 1, 252, 3, 3][..], &random.bytes(506)].concat()),
            );
            say(
                Server,
                record(0x16, &[&[2, 0, 0, 118, 3, 3][..], &random.bytes(116)].concat()),
            );
            say(
                Server,
                [record(0x14, &[1]), record(0x17, &random.bytes(2000))].concat(),
            );
            say(
                Client,
                [record(0x14, &[1]), record(0x17, &random.bytes(53))].concat(),
            );
            for _ in 0..8 {
                say(Client, record(0x17, &random.bytes(700)));
                say(Server, record(0x17, &random.bytes(16_000)));
            }
        }
        Kind::Http2 => {
            say(
                Client,
                [
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
                    frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]),
                ]
                .concat(),
            );
            say(Server, [frame(4, 0, 0, &[]), frame(4, 1, 0, &[])].concat());
            for stream in 0..8u32 {
                let id = 2 * stream + 1;
                // HPACK: indexed `:method POST`, `:scheme http`, `:path /`; then `:status 200`.
                say(
                    Client,
                    [
                        frame(1, 4, id, &[0x83, 0x86, 0x84]),
                        frame(0, 1, id, br#"{"model":"m"}"#),
                    ]
                    .concat(),
                );
                say(
                    Server,
                    [frame(1, 4, id, &[0x88]), frame(0, 1, id, &random.bytes(3000))].concat(),
                );
            }
        }
        Kind::Redis => {
            for _ in 0..32 {
                say(
                    Client,
                    b"*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$5\r\nvalue\r\n".to_vec(),
                );
                say(Server, b"+OK\r\n".to_vec());
                say(Client, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n".to_vec());
                say(Server, b"$5\r\nvalue\r\n".to_vec());
            }
        }
        Kind::Postgres => {
            say(
                Client,
                [&[0, 0, 0, 23, 0, 3, 0, 0][..], b"user\0postgres\0\0"].concat(),
            );
            say(
                Server,
                [
                    message(b'R', &[0, 0, 0, 0]),
                    message(b'S', b"server_version\x0015.0\0"),
                    message(b'Z', b"I"),
                ]
                .concat(),
            );
            for _ in 0..32 {
                say(Client, message(b'Q', b"SELECT 1\0"));
                let columns = [&[0, 1][..], b"x\0", &[0; 18]].concat();
                let row = [&[0, 1, 0, 0, 0, 1][..], b"1"].concat();
                let end = [message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
                say(
                    Server,
                    [message(b'T', &columns), message(b'D', &row), end].concat(),
                );
            }
        }
    }
    lines
}

/// A TLS record.
fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

/// An HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    [
        &(body.len() as u32).to_be_bytes()[1..],
        &[kind, flags],
        &stream.to_be_bytes(),
        body,
    ]
    .concat()
}

/// A PostgreSQL message.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// xorshift64: varied bytes without a dependency.
struct Random(u64);

impl Random {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(|_| {
                self.0 ^= self.0 << 13;
                self.0 ^= self.0 >> 7;
                self.0 ^= self.0 << 17;
                (self.0 >> 32) as u8
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::socket::pair;

    #[test]
    fn both_sides_of_every_dialogue_fit_together() {
        for kind in Kind::ALL {
            let (a, b) = pair().unwrap();
            let server = std::thread::spawn(move || hold(&a, Side::Server, kind, 3));
            hold(&b, Side::Client, kind, 99).unwrap();
            server.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_peer_that_leaves_is_an_error() {
        let (a, b) = pair().unwrap();
        drop(b);
        assert!(hold(&a, Side::Server, Kind::Redis, 1).is_err());
    }
}
