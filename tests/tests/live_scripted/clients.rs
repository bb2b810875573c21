//! Who asked: the other end of a connection, or whom a trusted proxy names.
//!
//! Owns: clients with addresses of their own, over every kind of connection. Refuses: what the clients ask.

use super::*;
use infertap_tests::scripted::Address;
use std::net::{IpAddr, SocketAddr, TcpStream};

const CONFIG: &str = r#"
[client]
trusted_proxies = ["127.0.0.9"]

[[scene]]
name = "first"
client = ["127.0.0.1"]

[[scene]]
name = "second"
client = ["127.0.0.2", "192.0.2.0/24"]

[[scene]]
name = "six"
client = ["::1/128"]

[[scene]]
name = "many"
client = ["127.0.1.0/24"]
"#;

/// Connects to `address` from `source`.
pub(super) fn from(source: IpAddr, address: &Address) -> Connection {
    let to = SocketAddr::new(
        match source {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => source,
        },
        address.port(),
    );
    let socket = match source {
        IpAddr::V4(_) => tokio::net::TcpSocket::new_v4(),
        IpAddr::V6(_) => tokio::net::TcpSocket::new_v6(),
    }
    .unwrap();
    socket.bind(SocketAddr::new(source, 0)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream: TcpStream = runtime
        .block_on(async { socket.connect(to).await.unwrap().into_std() })
        .unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_nodelay(true).unwrap();
    Connection::over(stream.into(), &Address::Tcp(to)).unwrap()
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn plan(index: usize) -> Plan {
    Plan {
        index,
        ..scripted(&json!({"chunks": 3}), true)
    }
}

/// A server on all addresses, and an agent with [`CONFIG`].
fn clients_bench(mode: &str) -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("infertap.toml");
    std::fs::write(&config, CONFIG).unwrap();
    let server = server(folder.path(), &["--listen", "[::]:0"]);
    let arguments = ["--config", config.to_str().unwrap(), "--socket-probe", mode];
    let (agent, engine) = watch(folder.path(), &server, &arguments);
    drop(Connection::open(&Address::loopback(server.address.port())).unwrap());
    Bench {
        server,
        agent: Arc::new(agent),
        engine,
        folder,
    }
}

/// Client and scene of each request, in the order of the truths.
fn found(bench: &Bench, truths: &[ClientTruth]) -> Vec<(Option<String>, String)> {
    let mut pairs = bench.assert_agree(truths, "clients");
    pairs.sort_by_key(|(truth, _)| truth.index);
    pairs
        .into_iter()
        .map(|(_, record)| (record.client, record.scene.unwrap()))
        .collect()
}

#[test]
fn clients_are_told_apart_by_their_addresses() {
    let bench = clients_bench("tracepoint");
    let (mut truths, mut expected) = (Vec::new(), Vec::new());
    // Connections that stay, in turns.
    let sources = [("127.0.0.1", "first"), ("127.0.0.2", "second"), ("::1", "six")];
    let mut connections = sources.map(|(source, _)| from(ip(source), &bench.server.address));
    for _ in 0..3 {
        for (connection, (source, scene)) in connections.iter_mut().zip(sources) {
            truths.push(connection.exchange(&plan(truths.len())));
            expected.push((Some(source.to_owned()), scene.to_owned()));
        }
    }
    // Connections of one request each, which are gone when it is read of them.
    for number in 0..250 {
        let source = format!("127.0.1.{}", number + 1);
        let plan = Plan {
            close: true,
            ..plan(truths.len())
        };
        truths.push(from(ip(&source), &bench.server.address).exchange(&plan));
        expected.push((Some(source), "many".to_owned()));
    }
    // A header from nobody who is trusted; and on a proxy's connection, of several clients.
    let forwarded = |index: usize, header: &str| {
        let mut plan = plan(index);
        plan.headers
            .push(("X-Forwarded-For".to_owned(), header.to_owned()));
        plan
    };
    truths.push(connections[1].exchange(&forwarded(truths.len(), "127.0.0.1")));
    expected.push((Some("127.0.0.2".to_owned()), "second".to_owned()));
    let mut proxy = from(ip("127.0.0.9"), &bench.server.address);
    for (header, client, scene) in [
        ("127.0.0.1", Some("127.0.0.1"), "first"),
        ("127.0.0.1, 192.0.2.7", Some("192.0.2.7"), "second"),
        ("192.0.2.7, 127.0.0.9", Some("192.0.2.7"), "second"),
        ("2001:db8::1", Some("2001:db8::1"), "default"),
        ("unknown", None, "default"),
    ] {
        truths.push(proxy.exchange(&forwarded(truths.len(), header)));
        expected.push((client.map(str::to_owned), scene.to_owned()));
    }
    for (index, (found, expected)) in found(&bench, &truths).iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "request {index} of {}", truths.len());
    }
}

#[test]
fn a_connection_that_was_open_before_has_a_client_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let mut connection = from(ip("127.0.0.2"), &server.address);
    connection.exchange(&plan(0));
    let (agent, engine) = watch(folder.path(), &server, &[]);
    // The server was waiting in a read that nobody saw it enter.
    connection.exchange(&plan(1));
    let truth = connection.exchange(&plan(2));
    let records = agent
        .wait_requests(2, Duration::from_secs(5), |record| record.engine == engine)
        .unwrap();
    let record = agent.the_record(&records, &truth, |record| record.response_id == truth.response_id);
    assert_eq!(
        record.client.as_deref(),
        Some("127.0.0.2"),
        "{}",
        agent.log_tail()
    );
}

#[test]
fn who_asked_is_absent_where_the_kernel_does_not_tell() {
    for arguments in [["--socket-probe", "uprobe"], ["--set", "capture.arrivals=false"]] {
        let bench = bench(&[], &arguments);
        let truth = bench.connect().exchange(&plan(0));
        assert_eq!(
            found(&bench, &[truth]),
            [(None, "default".to_owned())],
            "{arguments:?}"
        );
    }
}
