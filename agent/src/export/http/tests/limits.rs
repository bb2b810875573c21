//! Connections: limits, shutdown, binding.

use super::*;

#[tokio::test]
async fn large_and_broken_heads_are_refused() {
    let server = server().await;
    let many = "X-A: b\r\n".repeat(MAX_HEADERS + 1);
    assert_eq!(ask(server.address, "GET", "/healthz", &many).await.status, 431);
    let long = format!("X-A: {}\r\n", "b".repeat(2 * MAX_HEAD_BYTES));
    assert_eq!(ask(server.address, "GET", "/healthz", &long).await.status, 431);
    let answer = send(
        server.address,
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\r\n\r\n",
    )
    .await;
    assert!(answer.is_empty() || parse(&answer).status == 400, "{answer:?}");
    assert_eq!(get(server.address, "/healthz").await.status, 200);
}

#[tokio::test]
async fn a_client_that_sends_no_head_gives_its_place_back() {
    let server = server_with(Limits {
        connections: 1,
        head: Duration::from_millis(50),
        ..LIMITS
    })
    .await;
    let mut slow = TcpStream::connect(server.address).await.expect("connects");
    slow.write_all(b"GET /healthz HT").await.expect("sends");
    // Waits for the one place, which the slow client must lose.
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    let mut silent = TcpStream::connect(server.address).await.expect("connects");
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_gives_its_place_back() {
    let server = server_with(Limits {
        connections: 1,
        lifetime: Duration::from_millis(50),
        grace: Duration::from_millis(50),
        ..LIMITS
    })
    .await;
    let labels = labels("e", "m", "s");
    for _ in 0..1000 {
        server
            .exporter
            .apply(&[finished(&labels, record(&labels, Status::Ok))]);
    }
    let mut deaf = TcpStream::connect(server.address).await.expect("connects");
    let ask = "GET /api/v1/requests?limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n";
    deaf.write_all(ask.repeat(100).as_bytes()).await.expect("sends");
    assert_eq!(get(server.address, "/healthz").await.status, 200);
}

#[tokio::test]
async fn clients_that_do_not_read_hold_few_large_answers() {
    let server = server_with(Limits {
        answers: 1,
        answer_wait: Duration::from_millis(20),
        ..LIMITS
    })
    .await;
    let labels = labels("e", "m", "s");
    for _ in 0..1000 {
        server
            .exporter
            .apply(&[finished(&labels, record(&labels, Status::Ok))]);
    }
    let mut deaf = TcpStream::connect(server.address).await.expect("connects");
    let ask = "GET /api/v1/requests?limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n";
    deaf.write_all(ask.repeat(100).as_bytes()).await.expect("sends");
    // Once the sockets' buffers are full, the answer that does not fit keeps the one place.
    let refused = loop {
        let answer = get(server.address, "/metrics").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json(),
        json!({"error": "other clients are still reading large answers; try again"})
    );
    assert_eq!(get(server.address, "/healthz").await.status, 200);
    drop(deaf);
    while get(server.address, "/metrics").await.status != 200 {}
}

#[tokio::test]
async fn one_connection_serves_many_requests() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.expect("connects");
    for last in [false, false, true] {
        let close = if last { "Connection: close\r\n" } else { "" };
        let ask = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{close}\r\n");
        stream.write_all(ask.as_bytes()).await.expect("sends");
        if last {
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("reads");
            assert!(answer.ends_with(br#"{"status":"alive"}"#));
        } else {
            let mut answer = Vec::new();
            while !answer.ends_with(br#"{"status":"alive"}"#) {
                assert_ne!(stream.read_buf(&mut answer).await.expect("reads"), 0);
            }
        }
    }
}

#[tokio::test]
async fn many_clients_at_once_while_requests_arrive() {
    let server = server().await;
    let mut clients = JoinSet::new();
    for i in 0..100 {
        let address = server.address;
        server
            .exporter
            .apply(&request(&labels("e", &format!("m{i}"), "s"), Status::Ok));
        clients.spawn(async move {
            get(address, ["/metrics", "/api/v1/requests", "/readyz"][i % 3])
                .await
                .status
        });
    }
    let statuses = clients.join_all().await;
    assert_eq!(statuses.len(), 100);
    assert!(
        statuses.iter().all(|status| [200, 503].contains(status)),
        "{statuses:?}"
    );
}

#[tokio::test]
async fn shutdown_ends_idle_connections_and_frees_the_port() {
    let server = server().await;
    let mut idle = TcpStream::connect(server.address).await.expect("connects");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .expect("sends");
    let mut answer = Vec::new();
    while !answer.ends_with(br#"{"status":"alive"}"#) {
        assert_ne!(idle.read_buf(&mut answer).await.expect("reads"), 0);
    }
    server.stop.send(()).expect("it runs");
    server.task.await.expect("ends without a panic");
    assert_eq!(idle.read(&mut [0; 8]).await.expect("closed, not reset"), 0);
    bind(server.address).await.expect("the port is free");
}

#[tokio::test]
async fn a_taken_port_is_told_with_what_to_do() {
    let first = bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .await
        .expect("a free port");
    let address = first.local_addr().expect("bound");
    assert_eq!(
        bind(address).await.expect_err("taken").to_string(),
        format!("address in use: {address}; choose another with --listen")
    );
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 9464));
    assert_eq!(
        bind(elsewhere).await.expect_err("not here").to_string(),
        "192.0.2.1:9464 is no address of this host; choose another with --listen"
    );
}

#[test]
fn the_section_has_defaults_and_bounds() {
    let config: ServerConfig = toml::from_str("").expect("all optional");
    assert_eq!(config, ServerConfig::default());
    assert!(config.listen.ip().is_loopback());
    let config: ServerConfig =
        toml::from_str("listen = \"[::1]:1\"\nrecent_requests = 100001\nhistory_memory = \"65MiB\"")
            .expect("parses");
    let expected = [
        ("server.recent_requests", "100001 is more than 100000"),
        ("server.history_memory", "65MiB is more than 64MiB"),
    ];
    let expected = expected.map(|(key, reason)| (key.to_owned(), reason.to_owned()));
    assert_eq!(config.invalid(), expected);
    let refused = Exporter::new(&MetricsConfig::default(), &config).expect_err("out of range");
    assert_eq!(
        refused.to_string(),
        "server.recent_requests: 100001 is more than 100000"
    );
    assert!(toml::from_str::<ServerConfig>("port = 1").is_err());
}
