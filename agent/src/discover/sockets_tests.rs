//! Tests of `sockets`: tables as written by the kernel, real sockets of this process, and garbage.

use super::*;
use proptest::prelude::*;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

const PROC: &str = "/proc";

fn me(fd: &impl AsRawFd) -> (u32, u32) {
    (std::process::id(), fd.as_raw_fd() as u32)
}

fn kind(fd: &impl AsRawFd) -> FdKind {
    let (pid, fd) = me(fd);
    fd_kind(Path::new(PROC), pid, fd)
}

fn of(fd: &impl AsRawFd) -> Option<SocketFd> {
    let (pid, number) = me(fd);
    let sockets = stream_sockets(Path::new(PROC), pid).expect("own sockets");
    sockets.into_iter().find(|s| s.fd == number)
}

fn seqpacket() -> OwnedFd {
    // SAFETY: a plain system call; the descriptor is new and owned from here on.
    unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0)) }
}

#[test]
fn real_descriptors_are_told_apart() {
    let dir = tempfile::tempdir().expect("tempdir");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("addr").port();
    let client = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    let (accepted, _) = listener.accept().expect("accept");
    let listener6 = TcpListener::bind("[::1]:0").ok();
    let unix_listener = UnixListener::bind(dir.path().join("s")).expect("bind");
    let unix_client = UnixStream::connect(dir.path().join("s")).expect("connect");
    let (unix_accepted, _) = unix_listener.accept().expect("accept");
    let (pair, _other) = UnixStream::pair().expect("pair");
    let datagram = UnixDatagram::unbound().expect("datagram");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("udp");
    let file = std::fs::File::open("/dev/null").expect("open");

    for fd in [listener.as_raw_fd(), client.as_raw_fd(), accepted.as_raw_fd()] {
        assert_eq!(kind(&fd), FdKind::Tcp);
    }
    for fd in [
        unix_listener.as_raw_fd(),
        unix_client.as_raw_fd(),
        unix_accepted.as_raw_fd(),
        pair.as_raw_fd(),
    ] {
        assert_eq!(kind(&fd), FdKind::UnixStream);
    }
    for fd in [
        datagram.as_raw_fd(),
        udp.as_raw_fd(),
        file.as_raw_fd(),
        seqpacket().as_raw_fd(),
    ] {
        assert_eq!(kind(&fd), FdKind::Other);
    }
    assert_eq!(
        fd_kind(Path::new(PROC), std::process::id(), 1_000_000),
        FdKind::Unreadable
    );

    let found = of(&listener).expect("listed");
    assert_eq!(
        (found.transport, found.role, found.listening, found.port),
        (Transport::Tcp, Role::Listen, true, Some(port))
    );
    assert_eq!(
        of(&accepted).map(|s| (s.role, s.port)),
        Some((Role::Accepted, Some(port)))
    );
    assert_eq!(of(&client).map(|s| s.role), Some(Role::Connected));
    if let Some(listener6) = listener6 {
        assert_eq!(of(&listener6).map(|s| s.role), Some(Role::Listen));
    }
    assert_eq!(
        of(&unix_listener).map(|s| (s.transport, s.role)),
        Some((Transport::Unix, Role::Listen))
    );
    assert_eq!(of(&unix_accepted).map(|s| s.role), Some(Role::Accepted));
    assert_eq!(of(&unix_client).map(|s| s.role), Some(Role::Unknown));
    assert_eq!(
        of(&pair).map(|s| (s.transport, s.role)),
        Some((Transport::Unix, Role::Unknown))
    );
    assert!(of(&datagram).is_none() && of(&udp).is_none() && of(&file).is_none());
    assert!(stream_sockets(Path::new(PROC), 0).is_err());
}

#[test]
fn an_unbound_tcp_socket_is_in_no_table_and_still_known() {
    // SAFETY: a plain system call; the descriptor is new and owned from here on.
    let fresh = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)) };
    assert_eq!(kind(&fresh), FdKind::Tcp);
    assert_eq!(
        of(&fresh).map(|s| (s.transport, s.role, s.port)),
        Some((Transport::Tcp, Role::Unknown, None))
    );
}

#[test]
fn a_multipath_tcp_listener_is_a_tcp_listener() {
    const IPPROTO_MPTCP: i32 = 262;
    // SAFETY: a plain system call; a descriptor is owned below only when there is one.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, IPPROTO_MPTCP) };
    if raw < 0 {
        // Kernels without CONFIG_MPTCP have no such socket for anybody to listen on.
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::EPROTONOSUPPORT)
        );
        return;
    }
    // SAFETY: the descriptor is new and owned from here on.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: an unbound socket is given an ephemeral port by listen(2).
    assert_eq!(unsafe { libc::listen(socket.as_raw_fd(), 1) }, 0);
    assert_eq!(kind(&socket), FdKind::Tcp);
    assert_eq!(of(&socket).map(|s| s.role), Some(Role::Listen));
}

#[test]
fn tables_as_the_kernel_writes_them() {
    let dir = tempfile::tempdir().expect("tempdir");
    let process = dir.path().join("7");
    std::fs::create_dir_all(process.join("fd")).expect("mkdir");
    std::fs::create_dir(process.join("net")).expect("mkdir");
    let sockets = [
        (3, 100),
        (4, 101),
        (5, 102),
        (6, 103),
        (7, 200),
        (8, 201),
        (9, 202),
        (10, 203),
        (11, 999),
    ];
    for (fd, inode) in sockets {
        std::os::unix::fs::symlink(
            format!("socket:[{inode}]"),
            process.join("fd").join(fd.to_string()),
        )
        .expect("link");
    }
    std::os::unix::fs::symlink("pipe:[55]", process.join("fd/12")).expect("link");
    std::fs::write(
        process.join("net/tcp"),
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
         \x20  0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0\n\
         \x20  1: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 101 1 0 20 4 30 10 -1\n\
         \x20  2: 0100007F:C351 0100007F:0050 08 00000000:00000000 00:00000000 00000000     0        0 102 1 0 20 4 30 10 -1\n\
         \x20  3: garbage\n",
    )
    .expect("write");
    std::fs::write(
        process.join("net/tcp6"),
        "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
         \x20  0: 00000000000000000000000000000000:1F41 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 103 1 0 100 0 0 10 0\n",
    )
    .expect("write");
    std::fs::write(
        process.join("net/unix"),
        "Num       RefCount Protocol Flags    Type St Inode Path\n\
         0000000000000000: 00000002 00000000 00010000 0001 01 200 /tmp/a b\n\
         0000000000000000: 00000003 00000000 00000000 0001 03 201 /tmp/a b\n\
         0000000000000000: 00000003 00000000 00000000 0005 03 202\n\
         0000000000000000: 00000003 00000000 00000000 0001 03 203\n",
    )
    .expect("write");
    let rows: Vec<_> = stream_sockets(dir.path(), 7)
        .expect("listed")
        .into_iter()
        .map(|s| (s.fd, s.transport, s.role, s.port))
        .collect();
    assert_eq!(
        rows,
        [
            (3, Transport::Tcp, Role::Listen, Some(8000)),
            (4, Transport::Tcp, Role::Accepted, Some(8000)),
            (5, Transport::Tcp, Role::Connected, Some(50001)),
            (6, Transport::Tcp, Role::Listen, Some(8001)),
            (7, Transport::Unix, Role::Listen, None),
            (8, Transport::Unix, Role::Accepted, None),
            (10, Transport::Unix, Role::Unknown, None),
        ]
    );
    let kinds: Vec<_> = (7..=13).map(|fd| fd_kind(dir.path(), 7, fd)).collect();
    assert_eq!(
        kinds,
        [
            FdKind::UnixStream,
            FdKind::UnixStream,
            FdKind::Other,
            FdKind::UnixStream,
            FdKind::Other,
            FdKind::Other,
            FdKind::Unreadable
        ]
    );
    assert_eq!(
        tcp_listeners(&Host::new(dir.path()), 7),
        HashMap::from([(100, 8000), (103, 8001)])
    );
}

proptest! {
    #[test]
    fn rows_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = TcpRow::parse(&bytes);
        let _ = parse_unix_row(&bytes);
        let _ = inode_of(&bytes, b"socket");
    }
}
