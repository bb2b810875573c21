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
