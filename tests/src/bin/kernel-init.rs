//! Process 1 of the kernel test's machine: load, attach, observe local exchanges in both modes, power off.
//!
//! What it finds is told on the console, in lines that `tests/kernel.rs` reads.

use anyhow::{Context, Result, ensure};
use infertap_tests::{
    agent::{Agent, Start},
    cgroup::Group,
    compare::compare,
    exposition::Exposition,
    kernel::{FAILURE, SUCCESS},
    load::{Connection, Plan},
    scripted::ServerProcess,
};
use serde_json::json;
use std::{
    ffi::CString,
    io,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

fn main() {
    match prepare().and_then(|()| observe()) {
        Ok(()) => println!("{SUCCESS}"),
        Err(error) => println!("{FAILURE}: {error:#}"),
    }
    // SAFETY: sync and reboot have no memory effects; as process 1 of a machine made for this there is nothing to lose.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}

/// What an init does before anything else works.
fn prepare() -> Result<()> {
    for (kind, target) in [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("tmpfs", "/tmp"),
        ("cgroup2", "/sys/fs/cgroup"),
    ] {
        let (kind, at) = (CString::new(kind)?, CString::new(target)?);
        // SAFETY: three valid C strings and no data.
        let result = unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
        ensure!(
            result == 0,
            "can't mount {target}: {}",
            io::Error::last_os_error()
        );
    }
    loopback_up().context("can't bring the loopback interface up")
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: an ifreq of zeroes is valid; the name fits; the ioctl reads it from a live socket.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 || libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::close(socket);
    }
    Ok(())
}

fn observe() -> Result<()> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!("kernel {}", release.trim());
    let doctor = Command::new("/bin/infertap")
        .arg("doctor")
        .output()
        .context("can't run infertap doctor")?;
    println!(
        "{}{}",
        String::from_utf8_lossy(&doctor.stdout),
        String::from_utf8_lossy(&doctor.stderr)
    );
    ensure!(
        doctor.status.success(),
        "infertap doctor says that it can't work here"
    );
    for mode in ["tracepoint", "uprobe"] {
        observe_in(mode).with_context(|| format!("{mode} mode"))?;
        println!("{mode} mode: observed");
    }
    observe_memory().context("memory")?;
    println!("memory: observed");
    Ok(())
}

/// A server over the high limit of its control group of version 2 is throttled, which the agent tells; one over the hard
/// limit is killed, which it tells too.
fn observe_memory() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let folder = Path::new("/tmp/memory");
    std::fs::create_dir_all(folder)?;
    let group = Group::make("engine")?;
    ensure!(group.is_version2(), "the memory controller is not of version 2");
    let server = ServerProcess::start(Path::new("/bin/scripted-server"), folder, &[])?;
    group.admit(server.pid())?;
    group.throttle(24 * MIB)?;
    group.limit(64 * MIB)?;
    let config = folder.join("infertap.toml");
    std::fs::write(
        &config,
        "[pressure]\ninterval = \"500ms\"\nwindow = \"10s\"\nhold = \"1s\"\n",
    )?;
    let start = Start {
        binary: "/bin/infertap".into(),
        arguments: [
            "--pid",
            &server.pid().to_string(),
            "--config",
            "/tmp/memory/infertap.toml",
        ]
        .map(str::to_owned)
        .to_vec(),
        port: 0,
        log: folder.join("agent.log"),
        through: Vec::new(),
        leave: false,
    };
    let agent = Agent::start(&start)?;
    let engine = agent.wait_serving(server.pid(), Duration::from_secs(30))?;
    let wait = |what: &str, fit: &dyn Fn(&Exposition) -> bool| -> Result<()> {
        let start = Instant::now();
        while !fit(&agent.metrics()?) {
            ensure!(
                start.elapsed() < Duration::from_mins(1),
                "{what} is not told: {}\n{}",
                agent.engines()?,
                agent.log_tail()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
        println!("memory: {what}");
        Ok(())
    };
    let of = |name: &str, labels: &[(&str, &str)], metrics: &Exposition| {
        metrics.sum(name, &[&[("engine", engine.as_str())], labels].concat())
    };
    wait("the limit", &|metrics| {
        of("llm_engine_cgroup_memory_limit_bytes", &[], metrics) >= (64 * MIB) as f64
    })?;
    let ask = |allocate: u64, chunks: u64| {
        let script = json!({"allocate_mib": allocate, "chunks": chunks, "gap_us": 500_000});
        Plan::chat(
            "memory",
            "model-a",
            "hello",
            &json!({"stream": true, "script": script}),
        )
    };
    let mut connection = Connection::open(&server.address)?;
    connection.send(&ask(36, 200));
    wait("throttling", &|metrics| {
        of(
            "llm_engine_cgroup_memory_events_total",
            &[("event", "high")],
            metrics,
        ) > 0.0
    })?;
    wait("waiting for memory", &|metrics| {
        let stalls = |kind| {
            of(
                "llm_engine_memory_pressure_seconds_total",
                &[("scope", "cgroup"), ("kind", kind)],
                metrics,
            )
        };
        stalls("some") > 0.0 && stalls("full") > 0.0
    })?;
    wait("pressure", &|metrics| {
        of("llm_memory_pressure", &[("state", "none")], metrics) < 1.0
    })?;
    group.throttle(1 << 40)?;
    let mut second = Connection::open(&server.address)?;
    second.send(&ask(100, 1));
    wait("the kill", &|metrics| {
        of("llm_engine_oom_kills_total", &[], metrics) >= 1.0
    })?;
    ensure!(agent.stop(), "the agent did not end well");
    drop(server);
    Ok(())
}

fn observe_in(mode: &str) -> Result<()> {
    let folder = Path::new("/tmp").join(mode);
    std::fs::create_dir_all(&folder)?;
    let server = ServerProcess::start(Path::new("/bin/scripted-server"), &folder, &["--calls", "vector"])?;
    let start = Start {
        binary: "/bin/infertap".into(),
        arguments: ["--pid", &server.pid().to_string(), "--socket-probe", mode]
            .map(str::to_owned)
            .to_vec(),
        port: 0,
        log: folder.join("agent.log"),
        through: Vec::new(),
        leave: false,
    };
    let agent = Agent::start(&start)?;
    agent.wait_serving(server.pid(), Duration::from_secs(30))?;
    // A uprobe does not see the return of a call that was entered before it was attached: this connection takes the
    // accept that the server was waiting in.
    drop(Connection::open(&server.address)?);
    let mut connection = Connection::open(&server.address)?;
    let mut truths = Vec::new();
    for index in 0..4 {
        let script = json!({"chunks": 20, "gap_us": 2000, "padding": 500, "write": "vectored"});
        let extra =
            json!({"stream": index != 2, "stream_options": {"include_usage": true}, "script": script});
        let plan = Plan {
            index,
            ..Plan::chat("in the machine", "model-a", "hello", &extra)
        };
        truths.push(connection.exchange(&plan));
    }
    let records = agent.wait_requests(truths.len(), Duration::from_secs(20), |_| true)?;
    let comparison = compare(&truths, &records);
    ensure!(
        comparison.problems.is_empty(),
        "{}\n{}",
        comparison.problems.join("\n"),
        agent.log_tail()
    );
    ensure!(agent.stop(), "the agent did not end well");
    Ok(())
}
