//! Prints the raw records of one process: `probe_dump PID [tracepoint|uprobe] [SECONDS]`. For looking at what the kernel side sees.

use infertap::config::SocketProbe;
use infertap::probe::{ProbeOptions, Probes};
use infertap_core::Event;
use std::time::{Duration, Instant};

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let pid: u32 = args
        .next()
        .ok_or_else(|| anyhow::anyhow!("usage: probe_dump PID [MODE] [SECONDS]"))?
        .parse()?;
    let socket_probe = if args.next().as_deref() == Some("uprobe") {
        SocketProbe::Uprobe
    } else {
        SocketProbe::Tracepoint
    };
    let seconds = args.next().map_or(Ok(5), |s| s.parse())?;
    let options = ProbeOptions {
        arrivals: true,
        socket_probe,
        ring_bytes: 8 << 20,
        max_connections: 65536,
        procfs: "/proc".into(),
    };
    let begin = Instant::now();
    let (mut probes, mut targets, mut ring) = Probes::load(&options)?;
    println!("attached in {:?}: {:?}", begin.elapsed(), probes.states());
    for program in aya::programs::loaded_programs().flatten() {
        println!(
            "{:?}: {:?} instructions verified",
            program.name_as_str(),
            program.verified_instruction_count()
        );
    }
    probes.attach_process(pid)?;
    println!("seeded {} sockets", targets.watch(pid)?);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        ring.wait(Duration::from_millis(10))?;
        let mut unknown = Vec::new();
        ring.drain(4096, |record| match Event::decode(record) {
            Ok(event) => {
                println!("{} {:?}", event.at, event.kind);
                if let infertap_core::EventKind::FdUnknown(socket) = event.kind {
                    unknown.push(socket);
                }
            }
            Err(error) => println!("undecodable: {error}"),
        });
        for socket in unknown {
            targets.answer(&socket)?;
        }
    }
    println!("{:?}", targets.drops());
    let begin = Instant::now();
    drop(probes);
    println!("detached in {:?}", begin.elapsed());
    Ok(())
}
