//! Records while the configuration changes under the agent, and with a disk that is full.

use super::disk::SmallDisk;
use super::*;
use infertap_tests::http;
use std::process::Command;

/// A configuration that keeps so many of the ordinary requests.
fn config(folder: &Path, store: &Path, head_rate: &str) -> std::path::PathBuf {
    let path = folder.join("records.toml");
    let text = format!(
        "[store]\npath = \"{}\"\n[records]\nhead_rate = {head_rate}\nunusual_after = 0\nper_minute = 10000\n",
        store.display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

fn keeper(folder: &Path, server: &ServerProcess, store: &Path, head_rate: &str) -> Agent {
    let config = config(folder, store, head_rate);
    let store = format!("store.path={}", store.display());
    let arguments = ["--config", config.to_str().unwrap(), "--set", &store];
    watch(folder, server, &arguments).0
}

/// Makes a request that succeeds; returns its response's id.
fn ask(server: &ServerProcess) -> String {
    let mut connection = Connection::open(&server.address).unwrap();
    let truth = connection.exchange(&scripted(&json!({"chunks": 5}), true));
    assert_eq!(truth.outcome, Outcome::Complete);
    truth.response_id.unwrap()
}

/// What `infertap show` says of a response.
fn shown(folder: &Path, id: &str) -> Option<Value> {
    let output = Command::new(std::env::var_os(infertap_tests::agent::BINARY_VARIABLE).unwrap())
        .args(["show", id, "--json", "--config"])
        .arg(folder.join("records.toml"))
        .output()
        .unwrap();
    let answer = output.status.success().then_some(output.stdout)?;
    Some(serde_json::from_slice(&answer).unwrap())
}

/// It ended, all that belongs to it is counted, and the store had time to write it.
fn settle(agent: &Agent, id: &str) {
    let limit = Duration::from_secs(10);
    agent
        .wait_requests(1, limit, |record| record.response_id.as_deref() == Some(id))
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn rules_are_read_again_and_a_mistake_leaves_those_before() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let store = folder.path().join("store.db");
    let agent = keeper(folder.path(), &server, &store, "1");
    let reloads = |outcome: &str| {
        let metrics = agent.metrics().unwrap();
        metrics.sum("infertap_config_reloads_total", &[("outcome", outcome)])
    };
    let kept = |expected: bool, when: &str| {
        let id = ask(&server);
        settle(&agent, &id);
        assert_eq!(shown(folder.path(), &id).is_some(), expected, "{when}");
    };
    kept(true, "all are kept");
    config(folder.path(), &store, "1.5");
    wait(&agent, "the mistake is not seen", || reloads("refused") > 0.5);
    config(folder.path(), &store, "1");
    kept(true, "after a mistake");
    wait(&agent, "what was there before is not read", || {
        reloads("applied") > 0.5
    });
    config(folder.path(), &store, "0");
    wait(&agent, "the change is not read", || reloads("applied") > 1.5);
    kept(false, "none are kept");
    config(folder.path(), &store, "1.0");
    wait(&agent, "the second change is not read", || {
        reloads("applied") > 2.5
    });
    kept(true, "all are kept again");
    assert!(
        !agent
            .log_tail()
            .contains("[records] take effect at the next start"),
        "{}",
        agent.log_tail()
    );
    assert!(agent.stop());
}

#[test]
fn a_full_disk_loses_records_and_says_how_many_and_nothing_else_suffers() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount();
    let server = server(folder.path(), &[]);
    let store = disk.path().join("store.db");
    let mut agent = keeper(folder.path(), &server, &store, "1");
    let first = ask(&server);
    settle(&agent, &first);
    assert!(shown(folder.path(), &first).is_some());
    let sum = |agent: &Agent, name: &str| agent.metrics().unwrap().sum(name, &[]);
    assert!(sum(&agent, "infertap_store_lost_total").abs() < 0.5);
    let ended = sum(&agent, "llm_requests_total");

    let filler = disk.fill();
    let mut asked = 0.0;
    let mut during = Vec::new();
    wait(&agent, "nothing is lost", || {
        during.push(ask(&server));
        asked += 1.0;
        sum(&agent, "infertap_store_lost_total") > 0.5
    });
    for _ in 0..20 {
        during.push(ask(&server));
        asked += 1.0;
    }
    // Requests are served, observed and counted, and the agent says what is amiss.
    wait(&agent, "requests are not counted", || {
        sum(&agent, "llm_requests_total") > ended + asked - 0.5
    });
    agent.check_running().unwrap();
    let last = during.last().unwrap();
    settle(&agent, last);
    assert!(sum(&agent, "infertap_store_up").abs() < 0.5);
    let ready = http::get(&agent.address, "/readyz").unwrap();
    assert_eq!(ready.status, 200);
    assert!(ready.body.contains("nothing is kept"), "{}", ready.body);
    // What was kept before can be read all the while.
    assert!(shown(folder.path(), &first).is_some());

    std::fs::remove_file(&filler).unwrap();
    let mut after = String::new();
    wait(&agent, "the store is not tried again", || {
        after = ask(&server);
        std::thread::sleep(Duration::from_millis(500));
        sum(&agent, "infertap_store_up") > 0.5
    });
    let last = ask(&server);
    settle(&agent, &last);
    assert!(shown(folder.path(), &last).is_some(), "{}", agent.log_tail());
    // Each request is in the store, or counted as lost. Lost writes are of other tables too.
    let absent = during
        .iter()
        .filter(|id| shown(folder.path(), id).is_none())
        .count();
    let lost = sum(&agent, "infertap_store_lost_total");
    assert!(
        absent > 0 && lost >= absent as f64,
        "{absent} are not there, {lost} were lost"
    );
    println!(
        "{} requests while the disk was full, {absent} without a record, {lost} writes lost",
        during.len()
    );
    assert!(agent.stop());
}
