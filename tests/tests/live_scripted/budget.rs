//! Budgets over the agent's death, and with a disk that is full.

use super::disk::SmallDisk;
use super::*;
use infertap_tests::http;

/// Starts an agent with one budget, that keeps what is used in `store`.
fn keeper(folder: &Path, server: &ServerProcess, store: &Path) -> Agent {
    let config = folder.join("budget.toml");
    std::fs::write(
        &config,
        "[[budget]]\nname = \"all\"\nlimit = 1_000_000\nperiod = \"month\"\n",
    )
    .unwrap();
    let store = format!("store.path={}", store.display());
    let arguments = ["--config", config.to_str().unwrap(), "--set", &store];
    watch(folder, server, &arguments).0
}

fn used(agent: &Agent) -> f64 {
    let answer = http::get(&agent.address, "/api/v1/budgets")
        .unwrap()
        .json()
        .unwrap();
    answer["budgets"][0]["used"].as_f64().unwrap()
}

/// Makes requests, and waits until what they used has come to rest.
fn use_some(agent: &Agent, server: &ServerProcess) -> f64 {
    let before = used(agent);
    for _ in 0..3 {
        let mut connection = Connection::open(&server.address).unwrap();
        let truth = connection.exchange(&scripted(&json!({"chunks": 5}), true));
        assert_eq!(truth.outcome, Outcome::Complete);
    }
    wait(agent, "nothing is used", || used(agent) > before);
    let mut last = used(agent);
    loop {
        std::thread::sleep(Duration::from_millis(1500));
        let now = used(agent);
        if now.total_cmp(&last).is_eq() {
            return now;
        }
        last = now;
    }
}

#[test]
fn a_killed_agent_goes_on_with_its_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path(), &[]);
    let store = folder.path().join("store.db");
    let agent = keeper(folder.path(), &server, &store);
    let before = use_some(&agent, &server);
    assert!(before >= 15.0, "{before} tokens of three answers of five");
    agent.kill();
    let agent = keeper(folder.path(), &server, &store);
    let after = used(&agent);
    assert!(
        after.total_cmp(&before).is_eq(),
        "{before} before the kill, {after} after it"
    );
    let more = use_some(&agent, &server);
    assert!(
        (more - after - before).abs() < 0.5,
        "{after}, then {more}: as much again"
    );
    assert!(agent.stop());
}

#[test]
fn a_full_disk_stops_the_store_alone_and_nothing_is_lost_when_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = SmallDisk::mount();
    let server = server(folder.path(), &[]);
    let store = disk.path().join("store.db");
    let agent = keeper(folder.path(), &server, &store);
    let up = |agent: &Agent| agent.metrics().unwrap().sum("infertap_store_up", &[]) > 0.5;
    use_some(&agent, &server);
    assert!(up(&agent));

    let filler = disk.fill();
    let whole = use_some(&agent, &server);
    wait(&agent, "the store still writes", || !up(&agent));
    let ready = http::get(&agent.address, "/readyz").unwrap();
    assert_eq!(ready.status, 200, "the agent goes on");
    assert!(
        ready.body.contains("nothing is kept for the next start"),
        "{}",
        ready.body
    );
    let told = agent.log_tail().matches("nothing is kept").count();
    assert_eq!(told, 1, "one warning:\n{}", agent.log_tail());

    std::fs::remove_file(&filler).unwrap();
    // Whatever is used next is when the store is tried again.
    let mut more = whole;
    for _ in 0..8 {
        if up(&agent) {
            break;
        }
        more = use_some(&agent, &server);
    }
    assert!(up(&agent), "{}", agent.log_tail());
    assert!(
        !http::get(&agent.address, "/readyz")
            .unwrap()
            .body
            .contains("nothing is kept")
    );
    std::thread::sleep(Duration::from_secs(1));
    agent.kill();
    let agent = keeper(folder.path(), &server, &store);
    let after = used(&agent);
    assert!(
        after.total_cmp(&more).is_eq(),
        "{more} before the kill, {after} after it"
    );
}
