//! What a killed agent loses of budgets: less than a second, and nothing counts twice.
//!
//! A child process uses tokens at a known rate through the exporter and the real store, and is killed at a random moment, over
//! and over on the same file. It tells on a pipe what it is about to use and what it has used.

use infertap::budget::{BudgetConfig, KeeperThread, budgets};
use infertap::export::{Exporter, MetricsConfig, ServerConfig};
use infertap::store::{Reader, Store, tables};
use infertap_core::Observation;
use infertap_core::observation::{Labels, TokenDirection};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Names the store for the child.
const STORE: &str = "INFERTAP_TEST_CRASH_STORE";
const ROUNDS: u64 = 100;
/// Files at once, each with its share of the rounds.
const LANES: u64 = 4;
/// The longest life of a child after its first use, milliseconds.
const LONGEST: u64 = 2200;
/// Tokens used at once.
const TOKENS: u64 = 3;

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_micros()).expect("fits")
}

/// A zone in which no month ends while the test runs.
fn quiet_zone() -> &'static str {
    if now_us() / 1_000_000 % 86_400 > 82_800 {
        "Asia/Tokyo"
    } else {
        "UTC"
    }
}

/// The child's life: nothing, in the run of tests that starts it.
#[test]
fn child() {
    let Some(path) = std::env::var_os(STORE) else {
        return;
    };
    let exporter = Exporter::new(&MetricsConfig::default(), &ServerConfig::default()).expect("valid");
    let store = Arc::new(Store::open(Path::new(&path), Box::new(|_| {})).expect("opens"));
    exporter.budgets().keep_in(&store);
    let budget = BudgetConfig {
        name: "b".to_owned(),
        limit: 1e12,
        time_zone: quiet_zone().to_owned(),
        ..BudgetConfig::default()
    };
    exporter.budgets().configure(budgets(&[budget]).expect("valid"));
    let _thread = KeeperThread::start(&exporter).expect("starts");
    let labels = Labels {
        engine: "e".into(),
        model: "m".into(),
        scene: "default".into(),
    };
    let mut tell = std::io::stderr();
    let mut record = |used: u64, done: u64| {
        let words = [now_us(), used, done];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        tell.write_all(&bytes).expect("the parent reads");
    };
    let mut used = 0;
    loop {
        record(used + TOKENS, 0);
        exporter.apply(&[Observation::Tokens {
            request: 1,
            labels: labels.clone(),
            client: None,
            direction: TokenDirection::Output,
            count: TOKENS,
        }]);
        used += TOKENS;
        record(used, 1);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What one life was.
struct Life {
    /// Microseconds and tokens that had been used by then.
    acknowledged: Vec<(u64, u64)>,
    /// Tokens that may have been used.
    most: u64,
    killed: u64,
}

fn live_and_die(path: &Path, milliseconds: u64) -> Life {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(STORE, path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut told = child.stderr.take().expect("a pipe");
    let mut bytes = vec![0; 24];
    told.read_exact(&mut bytes).expect("it begins");
    let reader = std::thread::spawn(move || {
        told.read_to_end(&mut bytes).expect("a pipe");
        bytes
    });
    std::thread::sleep(Duration::from_millis(milliseconds));
    let killed = now_us();
    child.kill().expect("SIGKILL");
    child.wait().expect("it is gone");
    let bytes = reader.join().expect("reads");
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let records = words.chunks_exact(3);
    let most = records.clone().map(|record| record[1]).max();
    let done = records.filter(|record| record[2] == 1);
    Life {
        acknowledged: done.map(|record| (record[0], record[1])).collect(),
        most: most.expect("it began"),
        killed,
    }
}

fn kept(path: &Path) -> u64 {
    let rows = Reader::open(path)
        .expect("opens")
        .read(tables::budget::read)
        .expect("reads");
    assert!(rows.len() <= 1, "one budget, one period: {rows:?}");
    rows.first().map_or(0, |row| row.used as u64)
}

/// Runs some rounds on one file; the losses of each, in microseconds before the kill, and tokens that were used and kept.
fn lane(rounds: u64, lives: impl Fn(u64) -> u64) -> (Vec<u64>, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let (mut losses, mut before) = (Vec::new(), 0);
    for round in 0..rounds {
        let life = live_and_die(&path, lives(round));
        let after = kept(&path);
        let gained = after.checked_sub(before).expect("totals never go back");
        assert!(gained <= life.most, "{gained} kept of at most {} used", life.most);
        // The first use that is not in what was kept, or the kill itself.
        let missing = life.acknowledged.iter().find(|(_, used)| *used > gained);
        let loss = missing.map_or(0, |(at, _)| life.killed.saturating_sub(*at));
        assert!(
            loss <= 1_000_000,
            "what was used {loss} µs before the kill is lost: {gained} kept of {:?}",
            life.acknowledged.last()
        );
        losses.push(loss);
        before = after;
    }
    (losses, before)
}

#[test]
fn kill_9_loses_less_than_a_second_and_counts_nothing_twice() {
    let random = RandomState::new();
    let lanes: Vec<_> = (0..LANES)
        .map(|lane_of| {
            let random = random.clone();
            std::thread::spawn(move || {
                lane(ROUNDS / LANES, move |round| {
                    random.hash_one((lane_of, round)) % LONGEST
                })
            })
        })
        .collect();
    let (mut losses, mut tokens) = (Vec::new(), 0);
    for lane in lanes {
        let (more, kept) = lane.join().expect("its rounds hold");
        losses.extend(more);
        tokens += kept;
    }
    losses.sort_unstable();
    assert_eq!(losses.len() as u64, ROUNDS);
    println!(
        "{} kills, {tokens} tokens kept: {} ms of usage lost at the median, {} ms at most; nothing counted twice",
        losses.len(),
        losses[losses.len() / 2] / 1000,
        losses.last().expect("rounds") / 1000,
    );
}
