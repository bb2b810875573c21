//! The agent comes late, is killed; the server is restarted.
//!
//! Owns: what the end or the beginning of either does to the other. Refuses: single requests.

use super::*;

#[test]
fn an_agent_that_comes_late_says_so_and_gets_the_next_request_right() {
    for mode in MODES {
        let folder = tempfile::tempdir().unwrap();
        let server = server(folder.path(), &[]);
        let mut connection = Connection::open(&server.address).unwrap();
        let long = scripted(&json!({"chunks": 1000, "gap_us": 10_000}), true);
        let mut first = connection.send(&long);
        std::thread::sleep(Duration::from_millis(500));
        let (agent, engine) = watch(folder.path(), &server, &["--socket-probe", mode]);
        connection.receive(&long, &mut first);
        assert_eq!(first.outcome, Outcome::Complete);
        let second = connection.exchange(&scripted(&json!({"chunks": 5, "gap_us": 1000}), true));
        let records = agent
            .wait_requests(2, Duration::from_secs(5), |record| record.engine == engine)
            .unwrap();
        let of = |truth: &ClientTruth| {
            records
                .iter()
                .filter(|record| record.response_id == truth.response_id)
                .collect::<Vec<_>>()
        };
        let [late] = of(&first)[..] else {
            panic!(
                "{mode}: the stream that was under way: {records:#?}\n{}",
                agent.log_tail()
            )
        };
        assert_eq!(late.status, "incomplete", "{mode}");
        assert!(
            late.incomplete.iter().any(|why| why == "late_join"),
            "{mode}: {late:?}"
        );
        assert_eq!(
            (late.ttft_s, late.e2e_s),
            (None, None),
            "{mode}: a time that nobody saw begin"
        );
        let second_record = of(&second);
        let problems = compare(&[second], &second_record.into_iter().cloned().collect::<Vec<_>>()).problems;
        assert!(problems.is_empty(), "{mode}: {problems:#?}");
        assert_eq!(records.len(), 2, "{mode}: {records:#?}");
    }
}

#[test]
fn a_killed_agent_disturbs_nothing_and_leaves_no_program() {
    for mode in MODES {
        let Bench {
            mut server,
            agent,
            folder: _folder,
            ..
        } = bench(&[], &["--socket-probe", mode]);
        let programs = bpf_census::programs_of(agent.pid()).unwrap();
        assert!(!programs.is_empty(), "{mode}: the agent holds no program");
        let mut connection = Connection::open(&server.address).unwrap();
        let plan = scripted(&json!({"chunks": 200, "gap_us": 5_000}), true);
        let mut truth = connection.send(&plan);
        std::thread::sleep(Duration::from_millis(300));
        Arc::into_inner(agent).unwrap().kill();
        connection.receive(&plan, &mut truth);
        assert_eq!(
            (truth.outcome, truth.content_ns.len()),
            (Outcome::Complete, 200),
            "{mode}: {truth:?}"
        );
        assert!(server.is_running(), "{mode}");
        let start = Instant::now();
        let left = loop {
            let left = &bpf_census::loaded_programs().unwrap() & &programs;
            if left.is_empty() || start.elapsed() > Duration::from_secs(5) {
                break left;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(left.is_empty(), "{mode}: programs {left:?} are still loaded");
        let next = connection.exchange(&scripted(&json!({}), true));
        assert_eq!(next.outcome, Outcome::Complete, "{mode}");
    }
}

#[test]
fn a_restarted_server_is_watched_again_within_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let first = server(folder.path(), &[]);
    let (port, listen) = (first.address.port().to_string(), first.address.to_string());
    let agent = Agent::start(&Start::for_test(folder.path(), &["--port", &port]).unwrap()).unwrap();
    agent.wait_serving(first.pid(), Duration::from_secs(10)).unwrap();
    let seen = |truth: &ClientTruth| {
        let id = &truth.response_id;
        agent
            .requests()
            .unwrap()
            .iter()
            .any(|record| record.response_id == *id && record.status == "ok")
    };
    let request = |server: &ServerProcess| {
        Connection::open(&server.address)
            .unwrap()
            .exchange(&scripted(&json!({"chunks": 2}), true))
    };
    let truth = request(&first);
    let records = agent
        .wait_requests(1, Duration::from_secs(5), |record| {
            record.response_id == truth.response_id
        })
        .unwrap();
    assert_eq!(records.len(), 1, "{}", agent.log_tail());
    first.kill();
    let second = server(folder.path(), &["--listen", &listen]);
    // Watched is what a request proves.
    let start = Instant::now();
    let mut sent = Vec::new();
    while !sent.iter().any(seen) {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "not watched again:\n{}",
            agent.log_tail()
        );
        sent.push(request(&second));
        std::thread::sleep(Duration::from_millis(20));
    }
    let first_seen = sent.iter().find(|truth| seen(truth)).unwrap();
    let took = Duration::from_nanos(first_seen.sent_ns.saturating_sub(sent[0].sent_ns));
    println!("a restarted server was watched again {took:?} after it listened");
    assert!(took < Duration::from_secs(2), "{took:?}\n{}", agent.log_tail());
}
