//! A process that makes calls on command, and what the kernel side saw of it.

use infertap::config::SocketProbe;
use infertap::probe::{ProbeOptions, Probes, Ring, Targets};
use infertap_abi::{Direction, DropReason};
use infertap_core::Event;
use infertap_core::event::{ConnId, EventKind, Socket};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Attaching takes the kernel a while, and counts are the test's own: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// What was seen of one connection and direction.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(crate) bytes: Vec<u8>,
    /// Stream bytes that the pieces stand for.
    pub(crate) len: u64,
    /// A piece did not begin where the one before it ended.
    pub(crate) gaps: usize,
}

/// Everything seen of one connection.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) socket: Option<Socket>,
    pub(crate) opened: bool,
    pub(crate) input: Stream,
    pub(crate) output: Stream,
    pub(crate) eof: usize,
    /// The close told that the peer was gone.
    pub(crate) peer_gone: bool,
    /// Totals that the close told: in, out.
    pub(crate) closed: Option<(u64, u64)>,
    pub(crate) errors: Vec<u16>,
    pub(crate) stalls: usize,
    pub(crate) peers: Vec<IpAddr>,
    /// The first of them was told before any byte was.
    pub(crate) peer_before_bytes: Option<bool>,
    pub(crate) shutdown: bool,
}

pub(crate) struct Bench {
    /// There until the bench is dropped.
    probes: Option<Probes>,
    targets: Targets,
    ring: Ring,
    pub(crate) child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    seen: BTreeMap<ConnId, Seen>,
    pub(crate) forks: Vec<u32>,
    pub(crate) exits: Vec<u32>,
    _turn: MutexGuard<'static, ()>,
}

impl Bench {
    /// A Python process that makes calls on command, not watched yet.
    pub(crate) fn start(mode: SocketProbe) -> Bench {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new("python3")
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/tests/live_probe/sockets.py"
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let options = ProbeOptions {
            arrivals: true,
            socket_probe: mode,
            ring_bytes: 8 << 20,
            max_connections: 4096,
            procfs: "/proc".into(),
        };
        let (probes, targets, ring) =
            Probes::load(&options).expect("needs root: run with `cargo xtask test`");
        Bench {
            probes: Some(probes),
            targets,
            ring,
            stdin: child.stdin.take().unwrap(),
            stdout,
            child,
            seen: BTreeMap::new(),
            forks: Vec::new(),
            exits: Vec::new(),
            _turn: turn,
        }
    }

    /// Watches the process from now on.
    pub(crate) fn watch(&mut self) {
        let pid = self.child.id();
        self.probes.as_mut().unwrap().attach_process(pid).unwrap();
        self.targets.watch(pid).unwrap();
    }

    /// Notes arrivals, and who the other end is, on this port.
    pub(crate) fn listen(&mut self, port: u16) {
        self.targets.listen(std::iter::once(port)).unwrap();
    }

    /// Gives the process a command without waiting for its end.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.stdin, "{}", serde_json::Value::from(command)).unwrap();
        self.stdin.flush().unwrap();
    }

    /// Runs a command in the process, reads what the kernel side saw of it, and returns what it set `answer` to.
    pub(crate) fn run(&mut self, command: &str) -> String {
        self.tell(command);
        self.answered(command)
    }

    /// Waits for the end of a command that was told.
    pub(crate) fn answered(&mut self, command: &str) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let answer = line
            .strip_prefix("ok ")
            .unwrap_or_else(|| panic!("the process failed at: {command}"));
        let answer = answer.trim_end().to_owned();
        self.read();
        answer
    }

    pub(crate) fn read(&mut self) {
        let until = Instant::now() + Duration::from_millis(60);
        while Instant::now() < until {
            self.ring.wait(Duration::from_millis(10)).unwrap();
            let mut unknown = Vec::new();
            let Bench {
                ring,
                seen,
                forks,
                exits,
                ..
            } = self;
            ring.drain(usize::MAX, |record| {
                let event = Event::decode(record).expect("the kernel side writes what the core decodes");
                note(&event, seen, &mut unknown, forks, exits);
            });
            for socket in unknown {
                self.targets.answer(&socket).unwrap();
            }
        }
    }

    /// The connections that moved bytes or were opened, in the order of their first record.
    pub(crate) fn streams(&self) -> Vec<Seen> {
        let mut all: Vec<Seen> = self.seen.values().cloned().collect();
        all.retain(|seen| seen.socket.is_some());
        all
    }

    /// The one connection on which `bytes` were read or written.
    pub(crate) fn with(&self, direction: Direction, bytes: &[u8]) -> Seen {
        let found: Vec<Seen> = self
            .streams()
            .into_iter()
            .filter(|seen| {
                let stream = if direction == Direction::In {
                    &seen.input
                } else {
                    &seen.output
                };
                stream
                    .bytes
                    .windows(bytes.len().max(1))
                    .any(|window| window == bytes)
            })
            .collect();
        assert_eq!(
            found.len(),
            1,
            "{:?} in {:?}",
            String::from_utf8_lossy(bytes),
            self.seen
        );
        found.into_iter().next().unwrap()
    }

    pub(crate) fn drops(&self) -> Vec<(DropReason, u64)> {
        self.targets
            .drops()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The kernel closes one probe after the other, which takes seconds; the next test has maps and a ring of its own.
        let probes = self.probes.take();
        std::thread::spawn(move || drop(probes));
    }
}

fn entry<'a>(seen: &'a mut BTreeMap<ConnId, Seen>, socket: &Socket) -> &'a mut Seen {
    let entry = seen.entry(socket.conn).or_default();
    entry.socket = Some(*socket);
    entry
}

fn note(
    event: &Event<'_>,
    seen: &mut BTreeMap<ConnId, Seen>,
    unknown: &mut Vec<Socket>,
    forks: &mut Vec<u32>,
    exits: &mut Vec<u32>,
) {
    match &event.kind {
        EventKind::Open(socket) => entry(seen, socket).opened = true,
        EventKind::Data {
            socket,
            direction,
            offset,
            len,
            bytes,
            ..
        } => {
            let entry = entry(seen, socket);
            let stream = if *direction == Direction::In {
                &mut entry.input
            } else {
                &mut entry.output
            };
            stream.gaps += usize::from(*offset != stream.len);
            stream.len = offset + u64::from(*len);
            stream.bytes.extend_from_slice(bytes);
        }
        EventKind::Eof(socket) => entry(seen, socket).eof += 1,
        EventKind::Shutdown(socket) => entry(seen, socket).shutdown = true,
        EventKind::Error { socket, errno, .. } => entry(seen, socket).errors.push(*errno),
        EventKind::Stall(socket) => entry(seen, socket).stalls += 1,
        EventKind::Close(closed) => {
            let entry = entry(seen, &closed.socket);
            entry.closed = Some((closed.bytes_in, closed.bytes_out));
            entry.peer_gone = closed.peer_gone;
        }
        EventKind::Peer { socket, address, .. } => {
            let entry = entry(seen, socket);
            entry
                .peer_before_bytes
                .get_or_insert(entry.input.bytes.is_empty());
            entry.peers.push(*address);
        }
        EventKind::FdUnknown(socket) => unknown.push(*socket),
        EventKind::Fork { child, .. } => forks.push(*child),
        EventKind::Exit { tgid } => exits.push(*tgid),
        EventKind::Exec { .. }
        | EventKind::EngineUp(_)
        | EventKind::EngineDown { .. }
        | EventKind::Call(_)
        | EventKind::Counted(_)
        | EventKind::Gpu(_)
        | EventKind::CudaBurst(_)
        | EventKind::AllocFailure(_)
        | EventKind::Memory(_)
        | EventKind::Pod(_)
        | EventKind::CudaMapping(_) => {}
    }
}
