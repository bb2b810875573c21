//! Tests of discovery on the machine that runs them, with a process started for it.

use super::config::DiscoverConfig;
use super::scan::{Scanner, ScannerConfig};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A Python program that listens on a port of its own choice, until dropped.
struct Listener {
    child: Child,
    port: u16,
}

impl Listener {
    fn start() -> Listener {
        let program = "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=True)\ntime.sleep(600)";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("it prints its port");
        Listener {
            port: line.trim().parse().expect("a port"),
            child,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_real_process_is_found_by_port_and_by_pid_and_is_gone_when_it_ends() {
    let listener = Listener::start();
    let (pid, port) = (listener.child.id(), listener.port);
    for discover in [
        DiscoverConfig {
            ports: vec![port],
            builtin_rules: false,
            ..DiscoverConfig::default()
        },
        DiscoverConfig {
            pids: vec![pid],
            builtin_rules: false,
            ..DiscoverConfig::default()
        },
    ] {
        let scan = Scanner::new(ScannerConfig::new(discover)).scan();
        let engine = &scan.engines[0];
        assert_eq!(
            (scan.engines.len(), engine.info.pid, &engine.info.ports),
            (1, pid, &vec![port])
        );
        assert_eq!(*engine.info.id, format!("generic-{port}"));
    }
    let mut scanner = Scanner::new(ScannerConfig::new(DiscoverConfig {
        ports: vec![port],
        builtin_rules: false,
        ..DiscoverConfig::default()
    }));
    assert_eq!(scanner.scan().engines.len(), 1);
    drop(listener);
    let scan = scanner.scan();
    assert!(scan.engines.is_empty(), "{scan:?}");
    assert!(
        scan.problems
            .iter()
            .any(|problem| problem.to_string().contains("nobody listens"))
    );
}

#[test]
fn the_agent_itself_is_no_engine() {
    let own = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = own.local_addr().expect("address").port();
    let discover = DiscoverConfig {
        ports: vec![port],
        builtin_rules: false,
        ..DiscoverConfig::default()
    };
    assert!(
        Scanner::new(ScannerConfig::new(discover))
            .scan()
            .engines
            .is_empty()
    );
}
