//! Records are whole after a kill, wherever it hits a write.

use super::GpuDuring;
use super::tests::kept;
use crate::store::Store;
use crate::store::tables::record::{self as table, Amend, Query};
use infertap_core::Status;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);
/// More than a round writes before it is killed.
const PER_ROUND: i64 = 1_000_000;
/// So many records are written before more is known of one.
const LATER: i64 = 30;

fn all() -> Query {
    Query {
        limit: 1_000_000,
        ..Query::default()
    }
}

fn gpu(n: i64) -> GpuDuring {
    GpuDuring {
        gpu: n.to_string(),
        covered_s: n as f64,
        utilization_ratio: Some(0.5),
        power_watts: None,
        memory_used_max_bytes: Some(1 << 30),
        sm_clock_min_hertz: None,
        temperature_max_celsius: None,
        throttle_reasons: vec!["sw_power_cap".to_owned()],
    }
}

fn more(n: i64) -> Amend {
    Amend {
        id: format!("{n:09}"),
        change: Box::new(move |kept| kept.gpu = vec![gpu(n)]),
    }
}

/// The other end of the test below: writes until it is killed, and tells how much is certain. Does nothing elsewhere.
#[test]
fn writes_until_it_is_killed() {
    let (Ok(path), Ok(round)) = (
        std::env::var("INFERTAP_KILL_STORE"),
        std::env::var("INFERTAP_KILL_ROUND"),
    ) else {
        return;
    };
    let store = Store::open(Path::new(&path), Box::new(|_| {})).expect("opens");
    let begin = round.parse::<i64>().expect("a number") * PER_ROUND;
    for n in 0..PER_ROUND {
        let mut record = kept(&format!("{:09}", begin + n), Status::Ok, &["head"], begin + n);
        record.token_gaps = vec![(0.001 * n as f64, 1); 200];
        store.submit(record);
        // What comes later is added to a row that is there.
        if n >= LATER {
            store.submit(more(begin + n - LATER));
        }
        if n % 20 == 19 {
            assert!(store.flush(SOON));
            println!("certain {}", n + 1);
        }
    }
}

#[test]
fn a_kill_leaves_no_half_record_and_takes_none_that_was_committed() {
    const ROUNDS: usize = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let mut total = 0_i64;
    let mut amended = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().expect("a name"))
            .args([
                "--exact",
                "--nocapture",
                "records::kill_tests::writes_until_it_is_killed",
            ])
            .env("INFERTAP_KILL_STORE", &path)
            .env("INFERTAP_KILL_ROUND", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut certain = 0;
        let mut take = |lines: &mut dyn Iterator<Item = std::io::Result<String>>, until: usize| {
            for line in lines.map_while(Result::ok) {
                let Some((_, count)) = line.split_once("certain ") else {
                    continue;
                };
                certain = count.parse().expect("a number");
                if certain >= until {
                    break;
                }
            }
            certain
        };
        take(&mut lines, 20 * (1 + round % 3));
        // Somewhere within a batch, another place each round.
        std::thread::sleep(Duration::from_micros(1_700 * (round as u64 % 37)));
        child.kill().expect("kills");
        child.wait().expect("ends");
        let certain = take(&mut lines, usize::MAX);

        let store = Store::open(&path, Box::new(|_| {})).expect("opens after a kill");
        let of_round = Query {
            since_ms: Some(round as i64 * PER_ROUND),
            ..all()
        };
        let found = store.read(|db| table::newest(db, &of_round)).expect("reads");
        assert_eq!(found.unreadable, 0, "round {round}");
        assert!(
            found.records.len() >= certain,
            "round {round}: {certain} were certain"
        );
        for (n, record) in found.records.iter().rev().enumerate() {
            let n = round as i64 * PER_ROUND + n as i64;
            let id = format!("{n:09}");
            assert_eq!((record.ended_unix_ms, &record.record.id), (n, &id), "in order");
            assert!(
                record.gpu.is_empty() || record.gpu == [gpu(n)],
                "{:?}",
                record.gpu
            );
            amended += usize::from(!record.gpu.is_empty());
            let due = (n % PER_ROUND) + LATER < certain as i64;
            assert!(
                !due || !record.gpu.is_empty(),
                "round {round}: {n} is without what came later"
            );
        }
        total += found.records.len() as i64;
        let rows = store.read(|db| db.query_row("SELECT count(*) FROM request_record", [], |row| row.get(0)));
        assert_eq!(rows.ok(), Some(total), "and those of all rounds before");
    }
    println!("{ROUNDS} kills, {total} records, {amended} with what came later, none half there");
}
