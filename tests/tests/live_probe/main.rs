//! The kernel side, as root, on real system calls: which bytes reach the user side, and how every kind of call and every
//! way to come by a descriptor is seen.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod bench;

use bench::Bench;
use infertap::config::SocketProbe::{self, Tracepoint, Uprobe};
use infertap_abi::{Direction, DropReason, PIECE_LARGE, Role, Transport};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

const MODES: [SocketProbe; 2] = [Tracepoint, Uprobe];
const LISTEN: &str = "l = socket.create_server(('127.0.0.1', 0)); answer = l.getsockname()[1]";

fn connect(port: &str) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap()
}

/// A bench whose watched process has accepted a connection `c`, and the client's end of it.
fn accepted(mode: SocketProbe) -> (Bench, TcpStream) {
    let mut bench = Bench::start(mode);
    bench.watch();
    let client = connect(&bench.run(LISTEN));
    bench.run("c, _ = l.accept()");
    (bench, client)
}

#[test]
fn every_way_to_read_and_write_is_seen_whole() {
    for mode in MODES {
        let (mut bench, mut client) = accepted(mode);
        for (n, call) in [
            "c.recv(99)",
            "os.read(c.fileno(), 99)",
            "c.recvmsg_into([bytearray(3), bytearray(99)])",
            "os.readv(c.fileno(), [bytearray(2), bytearray(99)])",
        ]
        .into_iter()
        .enumerate()
        {
            client.write_all(format!("<request {n}>").as_bytes()).unwrap();
            bench.run(call);
        }
        for call in [
            "c.send(b'<send>')",
            "c.sendall(b'<sendall>')",
            "os.write(c.fileno(), b'<write>')",
            "os.writev(c.fileno(), [b'<', b'', b'writev', b'>'])",
            "c.sendmsg([b'<send', b'msg>'])",
        ] {
            bench.run(call);
        }
        let seen = bench.with(Direction::In, b"<request 0>");
        assert_eq!(
            String::from_utf8_lossy(&seen.input.bytes),
            "<request 0><request 1><request 2><request 3>",
            "{mode:?}"
        );
        assert_eq!(
            String::from_utf8_lossy(&seen.output.bytes),
            "<send><sendall><write><writev><sendmsg>",
            "{mode:?}"
        );
        assert_eq!((seen.input.gaps, seen.output.gaps), (0, 0), "{mode:?}");
        let socket = seen.socket.unwrap();
        assert_eq!(
            (socket.transport, socket.role, socket.late, seen.opened),
            (Transport::Tcp, Role::Accepted, false, true)
        );
        bench.run("c.close()");
        let seen = bench.with(Direction::In, b"<request 0>");
        assert_eq!(seen.closed, Some((seen.input.len, seen.output.len)), "{mode:?}");
        assert_eq!(bench.drops(), [], "{mode:?}");
    }
}

#[test]
fn peeking_moves_nothing_and_the_end_is_told_once() {
    let (mut bench, mut client) = accepted(Tracepoint);
    client.write_all(b"<peeked>").unwrap();
    bench.run("c.recv(99, socket.MSG_PEEK); c.recv(0); c.recv(4); c.recv(99)");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    bench.run("c.recv(99, socket.MSG_PEEK); c.recv(99); c.recv(99)");
    let seen = bench.with(Direction::In, b"<peeked>");
    assert_eq!(
        (seen.input.bytes.as_slice(), seen.input.gaps, seen.eof),
        (&b"<peeked>"[..], 0, 1)
    );
}

#[test]
fn the_other_end_is_told_once_before_its_bytes() {
    let mut bench = Bench::start(Tracepoint);
    bench.watch();
    let listen = "l = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)";
    let port = bench.run(&format!("{listen}; answer = l.getsockname()[1]"));
    bench.listen(port.parse().unwrap());
    for (host, call) in [
        ("127.0.0.1", "c.recv(99)"),
        ("127.0.0.1", "os.readv(c.fileno(), [bytearray(2), bytearray(99)])"),
        ("::1", "c.recv(99, socket.MSG_PEEK); c.recv(99)"),
    ] {
        let mut client = TcpStream::connect((host, port.parse().unwrap())).unwrap();
        bench.run("c, _ = l.accept()");
        for _ in 0..3 {
            client.write_all(format!("<from {host}>").as_bytes()).unwrap();
            bench.run(call);
        }
        let seen = bench.streams().pop().unwrap();
        assert_eq!(seen.input.len, 3 * (host.len() as u64 + 7));
        assert_eq!(seen.peers, [host.parse::<IpAddr>().unwrap()], "{host}");
        assert_eq!(seen.peer_before_bytes, Some(true), "{host}");
    }
    // Connected to another server it is a client, whose other end is of no use.
    let other = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let there = other.local_addr().unwrap().port();
    let own = bench.run(&format!(
        "o = socket.create_connection(('127.0.0.1', {there})); answer = o.getsockname()[1]"
    ));
    bench.listen(own.parse().unwrap());
    let (mut accepted, _) = other.accept().unwrap();
    accepted.write_all(b"<to a client>").unwrap();
    bench.run("o.recv(99)");
    assert!(bench.with(Direction::In, b"<to a client>").peers.is_empty());
    assert_eq!(bench.drops(), []);
}

#[test]
fn large_payloads_come_in_bounded_pieces_with_their_true_length() {
    let (mut bench, mut client) = accepted(Tracepoint);
    let body: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
    let sent = body.clone();
    let writer = std::thread::spawn(move || {
        client.write_all(&sent).unwrap();
        client
    });
    bench.run("n = 0\nwhile n < 600000: n += len(c.recv(256000))");
    let mut client = writer.join().unwrap();
    let seen = bench.with(Direction::In, &body[..PIECE_LARGE + 100]);
    assert_eq!(seen.input.len, 600_000);
    assert!(seen.input.bytes == body, "every byte, in order");

    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 3_000_000];
        client.read_exact(&mut got).unwrap();
        client
    });
    bench.run("c.setblocking(True); c.sendall(b'y' * 3000000)");
    drop(reader.join().unwrap());
    let seen = bench.with(Direction::Out, b"yyyy");
    assert_eq!(
        (seen.output.len, seen.output.gaps),
        (3_000_000, 0),
        "what is over the budget is accounted for"
    );
    assert!(
        seen.output.bytes.len() >= 1 << 20,
        "a call's budget is 1 MiB: {}",
        seen.output.bytes.len()
    );
}

#[test]
fn files_pipes_and_datagrams_stay_in_the_kernel() {
    let (mut bench, mut client) = accepted(Tracepoint);
    client.write_all(b"<request>").unwrap();
    bench.run("c.recv(99)");
    bench.run("f = os.open('/etc/passwd', os.O_RDONLY); os.read(f, 4096); os.close(f)");
    bench.run("r, w = os.pipe(); os.write(w, b'<pipe>'); os.read(r, 99)");
    bench.run(
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.sendto(b'<datagram>', ('127.0.0.1', 9))",
    );
    bench.run(
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.send(b'<unix datagram>'); b.recv(99)",
    );
    bench.run("e = os.eventfd(0); os.eventfd_write(e, 1)");
    assert_eq!(
        bench.streams().len(),
        1,
        "only the request's connection: {:?}",
        bench.streams()
    );
}

#[test]
fn duplicates_are_one_connection_and_numbers_are_reused_safely() {
    let (mut bench, mut client) = accepted(Tracepoint);
    client.write_all(b"<one>").unwrap();
    bench.run("c.recv(99); d = c.dup(); n = c.fileno(); c.close()");
    client.write_all(b"<two>").unwrap();
    bench.run("d.recv(99); os.dup2(d.fileno(), 200); d.close(); os.write(200, b'<three>')");
    let seen = bench.with(Direction::In, b"<one>");
    assert_eq!(
        (seen.input.bytes.as_slice(), seen.output.bytes.as_slice()),
        (&b"<one><two>"[..], &b"<three>"[..])
    );
    assert_eq!(seen.closed, None, "one descriptor is left");
    // dup2 onto it closes it; a file under an old socket's number is no socket.
    bench.run("f = os.open('/dev/null', os.O_RDWR); os.dup2(f, 200); os.write(200, b'<nothing>')");
    let seen = bench.with(Direction::In, b"<one>");
    assert_eq!(
        (seen.closed, seen.output.bytes.as_slice()),
        (Some((10, 7)), &b"<three>"[..])
    );
}

#[test]
fn connections_that_were_open_before_are_joined_late() {
    for mode in MODES {
        let mut bench = Bench::start(mode);
        bench.run(LISTEN);
        bench.run(
            "k = socket.create_connection(l.getsockname()); c, _ = l.accept(); a, b = socket.socketpair()",
        );
        bench.watch();
        bench.run("k.send(b'<asked>'); c.recv(99); c.send(b'<answered>'); k.recv(99)");
        let server = bench.with(Direction::In, b"<asked>");
        let socket = server.socket.unwrap();
        assert!(
            socket.late && socket.role == Role::Accepted,
            "{mode:?}: {socket:?}"
        );
        assert_eq!(server.output.bytes, b"<answered>", "{mode:?}");
        let client = bench.with(Direction::In, b"<answered>").socket.unwrap();
        assert!(
            client.late && client.role == Role::Connected,
            "{mode:?}: {client:?}"
        );
        bench.run("a.send(b'<unix>'); b.recv(99)");
        assert_eq!(
            bench.with(Direction::In, b"<unix>").socket.unwrap().transport,
            Transport::Unix,
            "{mode:?}"
        );
    }
}

#[test]
fn an_accept_that_began_before_is_recognised() {
    let mut bench = Bench::start(Tracepoint);
    let port = bench.run(LISTEN);
    bench.tell("c, _ = l.accept(); c.recv(99)");
    std::thread::sleep(Duration::from_millis(100));
    bench.watch();
    let mut client = connect(&port);
    client.write_all(b"<first>").unwrap();
    bench.answered("accept");
    let seen = bench.with(Direction::In, b"<first>");
    let socket = seen.socket.unwrap();
    assert_eq!(
        (socket.role, socket.late, seen.opened),
        (Role::Accepted, false, true)
    );
}

#[test]
fn the_client_s_end_is_told_from_the_server_s() {
    let (mut bench, mut client) = accepted(Tracepoint);
    client.write_all(b"<in>").unwrap();
    bench.run("c.recv(99)");
    bench.run(
        "k = socket.create_connection(l.getsockname()); s, _ = l.accept(); k.send(b'<out>'); s.recv(99)",
    );
    let connected = bench.with(Direction::Out, b"<out>").socket.unwrap();
    assert_eq!(
        (connected.role, connected.transport),
        (Role::Connected, Transport::Tcp)
    );
    assert_eq!(
        bench.with(Direction::In, b"<out>").socket.unwrap().role,
        Role::Accepted
    );
    bench.run("a, b = socket.socketpair(); a.send(b'<pair>'); b.recv(99)");
    let pair = bench.with(Direction::In, b"<pair>").socket.unwrap();
    assert_eq!((pair.role, pair.transport), (Role::Paired, Transport::Unix));
}

#[test]
fn refusals_errors_and_ends_are_told() {
    let (mut bench, client) = accepted(Tracepoint);
    bench.run("c.send(b'<start>')");
    bench.run("c.setblocking(False)");
    bench.run("try:\n  while True: c.send(b'z' * 65536)\nexcept BlockingIOError: pass");
    let seen = bench.with(Direction::Out, b"<start>");
    assert_eq!((seen.stalls, seen.errors.as_slice()), (1, &[][..]));
    // Unread data makes the kernel reset the connection.
    drop(client);
    std::thread::sleep(Duration::from_millis(50));
    bench.run("try:\n  c.recv(99)\nexcept OSError: pass\ntry:\n  c.send(b'z')\nexcept OSError: pass");
    let seen = bench.with(Direction::Out, b"<start>");
    assert_eq!(
        seen.errors.iter().map(|e| i32::from(*e)).collect::<Vec<_>>(),
        [libc::ECONNRESET, libc::EPIPE]
    );
    bench.run("d, e = socket.socketpair(); d.send(b'<bye>'); d.shutdown(socket.SHUT_WR)");
    assert!(bench.with(Direction::Out, b"<bye>").shutdown);
    bench.run("c.close(); d.close(); e.close()");
    assert!(
        bench.with(Direction::Out, b"<start>").peer_gone,
        "the close tells it again"
    );
    assert!(!bench.with(Direction::Out, b"<bye>").peer_gone);
}

#[test]
fn children_are_watched_from_their_first_instruction_and_threads_are_no_children() {
    let (mut bench, mut client) = accepted(Tracepoint);
    bench.run("import threading; t = threading.Thread(target=lambda: None); t.start(); t.join()");
    assert!(bench.forks.is_empty(), "a thread is no process");
    client.write_all(b"<to the child>").unwrap();
    bench.run(
        "pid = os.fork()\nif pid == 0:\n  c.recv(99); c.send(b'<from the child>'); c.recv(1); c.send(b'<again>'); os._exit(0)",
    );
    assert_eq!(bench.forks.len(), 1);
    client.write_all(b"!").unwrap();
    bench.run("os.waitpid(pid, 0)");
    let mut answer = [0; 23];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"<from the child><again>");
    // The child's inherited descriptor is looked up at its first use, so what is read meanwhile is missed; not what follows.
    let seen = bench.with(Direction::Out, b"<again>");
    let socket = seen.socket.unwrap();
    assert_eq!((socket.tgid, socket.late), (bench.forks[0], true));
    assert_eq!(bench.exits, [bench.forks[0]]);
}

#[test]
fn a_full_ring_is_counted_and_its_bytes_are_accounted_for() {
    let (mut bench, mut client) = accepted(Tracepoint);
    client.write_all(b"<before>").unwrap();
    bench.run("c.recv(99)");
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; 16 << 20];
        client.read_exact(&mut got).unwrap();
        client
    });
    // 16 MiB while nobody reads the ring of 8 MiB.
    bench.tell("for _ in range(256): c.sendall(b'q' * 65536)");
    let client = reader.join().unwrap();
    bench.answered("sendall");
    bench.run("c.send(b'<after>')");
    drop(client);
    let lost: u64 = bench
        .drops()
        .iter()
        .filter(|(reason, _)| *reason == DropReason::RingFull)
        .map(|(_, n)| n)
        .sum();
    assert!(lost > 0);
    let seen = bench.with(Direction::Out, b"<after>");
    assert_eq!(seen.output.len, (16 << 20) + 7);
    assert!(seen.output.gaps > 0);
    assert!(seen.output.bytes.len() < 16 << 20);
}
