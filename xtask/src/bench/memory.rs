//! The agent's resident memory while 1, 100 and 1,000 streams are open at once.
//!
//! Owns: the steady state in which it is read. Refuses: virtual sizes, which say nothing.

use super::{live::streams, setting::Setting};
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{thread, time::Duration};

const COUNTS: [usize; 3] = [1, 100, 1000];

pub(super) fn measure(setting: &Setting) -> Result<()> {
    println!("\n## Resident memory of the agent\n");
    println!("| open streams | RSS, MB |");
    println!("|---|---|");
    let server = setting.start_server()?;
    for count in COUNTS {
        let agent = setting
            .start_agent(&server, Some("tracepoint"))?
            .context("an agent was asked for")?;
        // Ten seconds of streaming, five chunks a second each; read in the middle.
        let script = json!({"chunks": 50, "gap_us": 200_000});
        let resident = thread::scope(|scope| {
            let load = scope.spawn(|| streams(&server, count, &script));
            thread::sleep(Duration::from_secs(6));
            let running = agent.metrics()?.sum("llm_requests_running", &[]);
            let resident = agent.resident_bytes()?;
            load.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
            ensure!(
                running as usize == count,
                "{running} of {count} streams were seen"
            );
            anyhow::Ok(resident)
        })?;
        println!("| {count} | {:.1} |", resident as f64 / 1e6);
    }
    Ok(())
}
