//! Servers that take what the agent sends out, and refuse what the real ones refuse.
//!
//! Owns: HTTP/1.1 as these servers need it, faults on demand. Refuses: the protocols, one file each, and leniency: what a real
//! server would not take must not pass here.

pub mod elastic;
pub mod kubernetes;
pub mod loki;

use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest head and largest body that are read.
const MAX_HEAD: usize = 64 << 10;
const MAX_BODY: usize = 256 << 20;

/// A request, as it came.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The query's pairs.
    pub query: BTreeMap<String, String>,
    /// By names in small letters.
    pub headers: BTreeMap<String, String>,
    /// Still encoded.
    pub body: Vec<u8>,
}

impl Request {
    /// A header's value, empty where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body, decoded; why not, where it can't be.
    pub fn decoded(&self) -> Result<Vec<u8>, String> {
        match self.header("content-encoding") {
            "" | "identity" => Ok(self.body.clone()),
            "gzip" => {
                let mut out = Vec::new();
                let limit = MAX_BODY as u64;
                let decoder = flate2::read::MultiGzDecoder::new(&*self.body);
                let read = decoder.take(limit).read_to_end(&mut out);
                read.map_err(|error| format!("gzip: {error}"))?;
                Ok(out)
            }
            other => Err(format!("Content-Encoding {other:?} not supported")),
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers beside those of the body's framing.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
}

impl Reply {
    /// Of text.
    pub fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply {
            status,
            headers: vec![("Content-Type", "text/plain; charset=utf-8".to_owned())],
            body: body.into(),
        }
    }

    /// Of JSON.
    pub fn json(status: u16, body: &serde_json::Value) -> Reply {
        Reply {
            status,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: body.to_string(),
        }
    }

    /// With another header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// Something that goes wrong with one request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It gets this answer and nothing is done.
    Answer(Reply),
    /// It is done, but the connection is closed instead of the answer.
    LoseAnswer,
    /// Nothing is answered for so long, and nothing is done.
    Hang(Duration),
}

/// Faults to come, in order: one a request.
#[derive(Debug, Default)]
pub struct Faults(Mutex<VecDeque<Fault>>);

impl Faults {
    /// One more.
    pub fn push(&self, fault: Fault) {
        lock(&self.0).push_back(fault);
    }

    /// All of them are over.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

/// What a server does with requests.
pub trait Service: Send + Sync + 'static {
    /// Answers one.
    fn handle(&self, request: &Request) -> Reply;
    /// What goes wrong before.
    fn faults(&self) -> &Faults;
}

/// A server on a port of its own, until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    over: Arc<AtomicBool>,
}

impl Server {
    /// Serves on a free port of 127.0.0.1.
    pub fn start<S: Service>(service: &Arc<S>) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let (service, end) = (Arc::clone(service), Arc::clone(&over));
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(socket), service, end) = (socket, Arc::clone(&service), Arc::clone(&end)) else {
                    continue;
                };
                std::thread::spawn(move || {
                    let _ = serve(&socket, &*service, &end);
                });
            }
        });
        Ok(Server { address, over })
    }

    /// Where it is: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection after the other's requests, until its client leaves or the server ends.
fn serve(socket: &TcpStream, service: &impl Service, over: &AtomicBool) -> Result<()> {
    socket.set_read_timeout(Some(Duration::from_mins(1)))?;
    let mut reader = BufReader::new(socket);
    while let Some(request) = read(&mut reader, socket)? {
        if over.load(Ordering::Relaxed) {
            return Ok(());
        }
        let fault = lock(&service.faults().0).pop_front();
        let reply = match fault {
            Some(Fault::Answer(reply)) => reply,
            Some(Fault::LoseAnswer) => {
                service.handle(&request);
                return Ok(());
            }
            Some(Fault::Hang(time)) => {
                std::thread::sleep(time);
                return Ok(());
            }
            None => service.handle(&request),
        };
        let mut text = format!("HTTP/1.1 {} -\r\n", reply.status);
        for (name, value) in &reply.headers {
            text.extend([*name, ": ", value.as_str(), "\r\n"]);
        }
        if reply.status != 204 {
            text.extend(["Content-Length: ", &reply.body.len().to_string(), "\r\n"]);
        }
        text += "\r\n";
        text += &reply.body;
        (&mut &*socket).write_all(text.as_bytes())?;
    }
    Ok(())
}

fn read(reader: &mut BufReader<&TcpStream>, mut socket: &TcpStream) -> Result<Option<Request>> {
    let line = |reader: &mut BufReader<&TcpStream>| -> Result<String> {
        let mut line = String::new();
        reader.by_ref().take(MAX_HEAD as u64).read_line(&mut line)?;
        Ok(line)
    };
    let first = line(reader)?;
    if first.is_empty() {
        return Ok(None);
    }
    let mut words = first.split_ascii_whitespace();
    let (method, target) = words.next().zip(words.next()).context("no request line")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: pairs
            .map(|(name, value)| (name.to_owned(), value.replace("%2C", ",").replace("%2A", "*")))
            .collect(),
        ..Request::default()
    };
    loop {
        let text = line(reader)?;
        let Some((name, value)) = text.split_once(':') else {
            break;
        };
        request
            .headers
            .insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    if request.header("expect") == "100-continue" {
        socket.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    if request.header("transfer-encoding") == "chunked" {
        loop {
            let size = usize::from_str_radix(line(reader)?.trim(), 16).context("no size of a chunk")?;
            if request.body.len() + size > MAX_BODY {
                bail!("a body without end");
            }
            let start = request.body.len();
            request.body.resize(start + size, 0);
            reader.read_exact(&mut request.body[start..])?;
            line(reader)?;
            if size == 0 {
                break;
            }
        }
    } else {
        let length = request.header("content-length").parse().unwrap_or(0);
        if length > MAX_BODY {
            bail!("a body without end");
        }
        request.body.resize(length, 0);
        reader.read_exact(&mut request.body)?;
    }
    Ok(Some(request))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
