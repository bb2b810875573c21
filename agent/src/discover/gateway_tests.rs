//! Tests of discovery on hosts with gateways: they are found, as one each, and as no engine.

use super::config::DiscoverConfig;
use super::fake::FakeHost;
use super::scan_tests::check;
use expect_test::expect;

/// Master and workers, which share their sockets.
fn nginx(host: &FakeHost, pid: u32) {
    for (pid, parent, title) in [
        (pid, 1, "nginx: master process /usr/sbin/nginx"),
        (pid + 1, pid, "nginx: worker process"),
        (pid + 2, pid, "nginx: worker process"),
    ] {
        host.process(pid, parent, u64::from(pid), &[title])
            .comm("nginx")
            .exe("/usr/sbin/nginx")
            .listen(6, 77, 8080);
    }
}

#[test]
fn a_gateway_and_its_workers_are_one() {
    let host = FakeHost::new(1000);
    nginx(&host, 100);
    let expected = expect![[r#"nginx-8080 gateway pid=100 ports=[8080] [100s 101s 102s] model=- version=-"#]];
    check(&host, DiscoverConfig::default(), &expected);
    let without = DiscoverConfig {
        gateways: false,
        ..DiscoverConfig::default()
    };
    check(&host, without, &expect![""]);
}

#[test]
fn what_the_operator_names_is_an_engine() {
    let host = FakeHost::new(1000);
    nginx(&host, 100);
    let named = DiscoverConfig {
        ports: vec![8080],
        ..DiscoverConfig::default()
    };
    let expected =
        expect![[r#"generic-8080 generic pid=100 ports=[8080] [100s 101s 102s] model=- version=-"#]];
    check(&host, named, &expected);
}

/// SGLang's router with servers that it forks: they are asked, and it only forwards.
#[test]
fn servers_that_a_gateway_started_are_engines() {
    let host = FakeHost::new(1000);
    let python = "/usr/bin/python3";
    host.process(100, 1, 100, &[python, "-m", "sglang_router.launch_server"])
        .comm("python3")
        .exe(python)
        .listen(6, 77, 30000);
    for (pid, port) in [(110, 31000), (120, 31001)] {
        host.process(pid, 100, u64::from(pid), &["sglang::server"])
            .comm("sglang::server")
            .exe(python)
            .listen(6, u64::from(pid), port);
        host.process(pid + 1, pid, u64::from(pid), &["sglang::scheduler"])
            .comm("sglang::schedul")
            .exe(python);
    }
    let expected = expect![[r#"
        sglang-31000 sglang pid=110 ports=[31000] [110s 111w] model=- version=-
        sglang-31001 sglang pid=120 ports=[31001] [120s 121w] model=- version=-
        sglang-router-30000 gateway pid=100 ports=[30000] [100s] model=- version=-"#]];
    check(&host, DiscoverConfig::default(), &expected);
}
