//! nginx before an engine, for tests of gateways.
//!
//! Owns: its configuration, its process. Refuses: installing it: Debian's nginx-light has all that is used.

use crate::{child::Child, engines::free_port, http, scripted::Address};
use anyhow::{Context, Result};
use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

/// How it passes requests on.
#[derive(Debug, Clone, Default)]
pub struct Start<'a> {
    /// Ports of the engines on the loopback interface, tried in this order.
    pub upstream: Vec<u16>,
    /// Whole answers are read before they are passed back.
    pub buffering: bool,
    /// More directives of the `location`.
    pub more: &'a str,
}

/// A running nginx. Ends when dropped.
#[derive(Debug)]
pub struct Nginx {
    /// Where it listens.
    pub address: Address,
    /// What discovery calls it.
    pub id: String,
    child: Child,
}

impl Nginx {
    /// Starts it with its files in `folder`, and waits until it serves.
    ///
    /// # Errors
    /// It is not installed, or does not start; what it said is part of the error.
    pub fn start(folder: &Path, start: &Start<'_>) -> Result<Nginx> {
        let port = free_port()?;
        let path = folder.join(format!("nginx-{port}.conf"));
        fs::write(&path, configuration(folder, port, start))?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&path).arg("-p").arg(folder);
        let log = folder.join(format!("nginx-{port}.log"));
        let mut child = Child::spawn("nginx", command, &log)
            .context("nginx is needed (Debian: apt-get install nginx-light)")?;
        let address = Address::loopback(port);
        child.wait_ready(Duration::from_secs(10), || {
            http::get(&address, "/ready").is_ok_and(|response| response.status == 200)
        })?;
        Ok(Nginx {
            address,
            id: format!("nginx-{port}"),
            child,
        })
    }

    /// Its master process.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}

fn configuration(folder: &Path, port: u16, start: &Start<'_>) -> String {
    let mut servers = String::new();
    for port in &start.upstream {
        let _ = write!(servers, "server 127.0.0.1:{port} max_fails=0; ");
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()))
        .join(" ");
    let (pid, buffering) = (
        folder.join(format!("nginx-{port}.pid")),
        if start.buffering { "on" } else { "off" },
    );
    format!(
        "user root; daemon off; worker_processes 2; pid {pid}; error_log stderr;
events {{ worker_connections 256; }}
http {{
    access_log off; {temporary}
    upstream engine {{ {servers} keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location = /ready {{ return 200; }}
        location / {{
            proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection \"\";
            proxy_buffering {buffering}; {more}
        }}
    }}
}}
",
        pid = pid.display(),
        more = start.more
    )
}
