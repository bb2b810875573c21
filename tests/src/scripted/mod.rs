//! A server without a model: it answers OpenAI-style requests on a known schedule, and writes down what it did.
//!
//! Owns: the listener, one thread a connection, the truth records. Refuses: inference; what to answer is the request's
//! own `script` member ([`Script`]).

pub mod engine;
pub mod garbage;
mod memory;
mod process;
mod reply;
mod request;
mod script;
mod socket;

pub use process::ServerProcess;
pub use script::{HeadStyle, Script, WriteStyle};
pub use socket::{Address, Calls, Socket};

use crate::clock::monotonic_ns;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

/// What the server did for one request, by its own clock (CLOCK_MONOTONIC nanoseconds).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerTruth {
    /// The response's `id`; empty where it had none.
    pub response_id: String,
    /// HTTP status that was sent.
    pub status: u16,
    /// `model` of the request.
    pub model: Option<String>,
    /// The read that brought the first byte of the request returned.
    pub t0_ns: u64,
    /// When the engine got it; absent, as the three that follow, where no engine computed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ns: Option<u64>,
    /// When the engine started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t1_ns: Option<u64>,
    /// When its first token existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t2_ns: Option<u64>,
    /// When its last token existed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t3_ns: Option<u64>,
    /// Just before the write of each content-bearing chunk.
    pub content_ns: Vec<u64>,
    /// Just before the last write of the response.
    pub t4_ns: u64,
    /// Content-bearing chunks and tokens that were written.
    pub chunks: u32,
    /// Tokens that were written.
    pub tokens: u32,
    /// Bytes of the request on the wire.
    pub request_bytes: u64,
    /// Bytes of the response on the wire that the kernel took.
    pub response_bytes: u64,
    /// The client went away, or the script broke the response off, before it was complete.
    pub broken: bool,
}

/// How a server behaves towards every connection.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// System calls that move the bytes.
    pub calls: Calls,
    /// Instead of HTTP, hold this dialogue on each connection.
    pub garbage: Option<garbage::Kind>,
    /// What requests without a `script` get.
    pub script: Script,
    /// Computes requests whose script says what they need of a GPU.
    pub engine: Option<engine::Engine>,
}

/// Where truth records go.
pub type TruthSink = Arc<dyn Fn(ServerTruth) + Send + Sync>;

/// A bound server that does not serve yet.
pub struct Server {
    listener: socket::Listener,
    options: Options,
    sink: TruthSink,
}

impl Server {
    /// Binds `address`; port 0 lets the kernel choose.
    pub fn bind(address: &Address, options: Options, sink: TruthSink) -> Result<Server> {
        let listener =
            socket::Listener::bind(address).with_context(|| format!("can't listen on {address}"))?;
        Ok(Server {
            listener,
            options,
            sink,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> Address {
        self.listener.address()
    }

    /// Serves until the process ends or accepting fails.
    pub fn serve(self) -> Result<()> {
        loop {
            let socket = self.listener.accept(self.options.calls)?;
            let (options, sink) = (self.options.clone(), Arc::clone(&self.sink));
            std::thread::Builder::new()
                .name("connection".to_owned())
                .stack_size(256 * 1024)
                .spawn(move || connection(&socket, &options, &sink))
                .context("can't start a thread for a connection")?;
        }
    }

    /// Serves from a background thread that lives as long as the process; for tests that need no process of their own.
    pub fn spawn(options: Options) -> Result<(Address, Arc<Mutex<Vec<ServerTruth>>>)> {
        let truths = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&truths);
        let sink: TruthSink =
            Arc::new(move |truth| kept.lock().unwrap_or_else(PoisonError::into_inner).push(truth));
        let server = Server::bind(&Address::loopback(0), options, sink)?;
        let address = server.address();
        std::thread::spawn(move || server.serve());
        Ok((address, truths))
    }
}

/// A sink that writes one JSON line a request and flushes it.
pub fn json_lines(out: impl Write + Send + 'static) -> TruthSink {
    let out = Mutex::new(out);
    Arc::new(move |truth| {
        let mut line = serde_json::to_vec(&truth).unwrap_or_default();
        line.push(b'\n');
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
            eprintln!("scripted-server: can't write a truth record: {error}");
        }
    })
}

/// One connection, until either side ends it.
fn connection(socket: &Socket, options: &Options, sink: &TruthSink) {
    if let Some(kind) = options.garbage {
        // A client may well give up in the middle; the next connection starts afresh.
        let _ = garbage::hold(socket, garbage::Side::Server, kind, monotonic_ns());
        return;
    }
    let mut reader = request::Reader::default();
    // A malformed request ends the connection, as a real server would.
    while let Ok(Some(request)) = reader.next(socket) {
        let mut truth = ServerTruth {
            t0_ns: request.t0_ns,
            request_bytes: request.bytes,
            model: request.model(),
            ..ServerTruth::default()
        };
        let keep = reply::reply(socket, &request, options, &mut truth);
        sink(truth);
        if !keep {
            return;
        }
    }
}
