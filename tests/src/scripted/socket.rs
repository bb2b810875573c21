//! Stream sockets over a choice of system calls, so that every one that servers use can be watched.
//!
//! Owns: listening, accepting, the calls. Refuses: `sendfile` and `splice`, which move no bytes of a response body
//! that has to be generated.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    str::FromStr,
};

/// Where to listen or connect: `host:port`, or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix stream socket.
    Unix(PathBuf),
}

impl Address {
    /// A port on 127.0.0.1.
    pub fn loopback(port: u16) -> Address {
        Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// The TCP port; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Address::Tcp(address) => address.port(),
            Address::Unix(_) => 0,
        }
    }

    /// Connects; TCP without Nagle's delay.
    pub fn connect(&self) -> io::Result<Socket> {
        let fd = match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                OwnedFd::from(stream)
            }
            Address::Unix(path) => OwnedFd::from(UnixStream::connect(path)?),
        };
        Ok(Socket {
            fd,
            calls: Calls::Socket,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => write!(f, "{address}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Address> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Address::Unix(path.into()));
        }
        Ok(Address::Tcp(text.parse().with_context(|| {
            format!("`{text}` is neither IP:PORT nor unix:PATH")
        })?))
    }
}

/// Which system calls move bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calls {
    /// `read`, `write`.
    Plain,
    /// `recv`, `send` (the kernel's recvfrom and sendto).
    #[default]
    Socket,
    /// `readv`, `writev`.
    Vector,
    /// `recvmsg`, `sendmsg`.
    Message,
}

impl FromStr for Calls {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Calls> {
        Ok(match text {
            "plain" => Calls::Plain,
            "socket" => Calls::Socket,
            "vector" => Calls::Vector,
            "message" => Calls::Message,
            _ => bail!("`{text}` is none of plain, socket, vector, message"),
        })
    }
}

pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn bind(address: &Address) -> io::Result<Listener> {
        Ok(match address {
            Address::Tcp(address) => Listener::Tcp(TcpListener::bind(address)?),
            Address::Unix(path) => Listener::Unix(UnixListener::bind(path)?, path.clone()),
        })
    }

    pub(super) fn address(&self) -> Address {
        match self {
            // A bound socket always has an address; the fallback only keeps this total.
            Listener::Tcp(listener) => listener.local_addr().map_or(Address::loopback(0), Address::Tcp),
            Listener::Unix(_, path) => Address::Unix(path.clone()),
        }
    }

    pub(super) fn accept(&self, calls: Calls) -> io::Result<Socket> {
        let fd = match self {
            Listener::Tcp(listener) => {
                let stream = listener.accept()?.0;
                stream.set_nodelay(true)?;
                OwnedFd::from(stream)
            }
            Listener::Unix(listener, _) => OwnedFd::from(listener.accept()?.0),
        };
        Ok(Socket { fd, calls })
    }
}

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    calls: Calls,
}

impl Socket {
    /// Reads what is there, waiting for the first byte; 0 at the end.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let fd = self.fd.as_raw_fd();
        let mut iov = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        retry(|| match self.calls {
            // SAFETY: pointer and length are those of `buffer`, which is writable and outlives the call.
            Calls::Plain => unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) },
            // SAFETY: as above.
            Calls::Socket => unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) },
            // SAFETY: `iov` is one vector over `buffer`.
            Calls::Vector => unsafe { libc::readv(fd, &raw const iov, 1) },
            Calls::Message => {
                let mut message = message_header(&raw mut iov, 1);
                // SAFETY: `message` points to one vector over `buffer`, and to nothing else.
                unsafe { libc::recvmsg(fd, &raw mut message, 0) }
            }
        })
    }

    /// One write of several buffers; how many bytes the kernel took. Waits until it takes any.
    pub fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = self.fd.as_raw_fd();
        let vectors = buffers.as_ptr().cast::<libc::iovec>();
        loop {
            let result = retry(|| match (self.calls, buffers) {
                // SAFETY: pointer and length are those of the one buffer, which outlives the call.
                (Calls::Plain, [one]) => unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) },
                // SAFETY: as above; MSG_NOSIGNAL makes a closed peer an error instead of a signal.
                (Calls::Socket, [one]) => unsafe {
                    libc::send(fd, one.as_ptr().cast(), one.len(), libc::MSG_NOSIGNAL)
                },
                (Calls::Message, _) => {
                    let message = message_header(vectors.cast_mut(), buffers.len());
                    // SAFETY: IoSlice has the layout of iovec; sendmsg only reads them and the buffers.
                    unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) }
                }
                // SAFETY: IoSlice has the layout of iovec, as its documentation promises.
                _ => unsafe { libc::writev(fd, vectors, buffers.len() as i32) },
            });
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                other => return other,
            }
        }
    }

    /// One write.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// As many writes as it takes.
    pub fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let n = self.write(bytes)?;
            bytes = &bytes[n..];
        }
        Ok(())
    }

    /// A small send buffer and non-blocking mode: writes fail with `EAGAIN` when the peer does not read.
    pub fn make_tight(&self) -> io::Result<()> {
        self.set_buffer(libc::SO_SNDBUF, 32 * 1024)?;
        // SAFETY: fcntl on an owned, open descriptor with an integer argument.
        let result = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// A small receive buffer: a peer's writes soon block when this side does not read.
    pub fn make_narrow(&self) -> io::Result<()> {
        self.set_buffer(libc::SO_RCVBUF, 32 * 1024)
    }

    fn set_buffer(&self, option: i32, bytes: i32) -> io::Result<()> {
        // SAFETY: the option's value is an int whose address and size are given.
        let result = unsafe {
            let value = (&raw const bytes).cast();
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                value,
                size_of::<i32>() as u32,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    fn wait_readiness(&self, events: i16) -> io::Result<()> {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events,
            revents: 0,
        };
        // SAFETY: one valid pollfd, no time limit.
        retry(|| unsafe { libc::poll(&raw mut poll, 1, -1) } as isize).map(drop)
    }

    fn wait_writable(&self) -> io::Result<()> {
        self.wait_readiness(libc::POLLOUT)
    }

    /// A read that waits longer than this many seconds fails.
    pub fn set_read_timeout(&self, seconds: i64) -> io::Result<()> {
        let time = libc::timeval {
            tv_sec: seconds,
            tv_usec: 0,
        };
        // SAFETY: the option's value is a timeval whose address and size are given.
        let result = unsafe {
            let value = (&raw const time).cast();
            let size = size_of::<libc::timeval>() as u32;
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                value,
                size,
            )
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Open, with nothing to read for so many milliseconds: neither bytes nor the end.
    pub fn is_quiet(&self, milliseconds: i32) -> bool {
        let mut poll = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd, a bounded wait.
        retry(|| unsafe { libc::poll(&raw mut poll, 1, milliseconds) } as isize).is_ok_and(|ready| ready == 0)
    }

    /// Waits until there is something to read, or the end.
    pub fn wait_readable(&self) -> io::Result<()> {
        self.wait_readiness(libc::POLLIN)
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Socket {
        Socket {
            fd: stream.into(),
            calls: Calls::default(),
        }
    }
}

fn message_header(vectors: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which zeroes mean no address, no control data, no flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors;
    message.msg_iovlen = count as _;
    message
}

fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(n) = usize::try_from(call()) {
            return Ok(n);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A connected pair of sockets.
#[cfg(test)]
pub(super) fn pair() -> io::Result<(Socket, Socket)> {
    let (a, b) = UnixStream::pair()?;
    Ok((
        Socket {
            fd: a.into(),
            calls: Calls::Plain,
        },
        Socket {
            fd: b.into(),
            calls: Calls::Message,
        },
    ))
}
