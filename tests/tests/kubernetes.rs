//! Pods, asked from a server that speaks the API server's lists and watches and refuses what that refuses.
//!
//! Owns: what the agent knows after each turn of the protocol. Refuses: what requests make of it (the live tests).

use infertap::pods::{KubernetesSection, PodBatch, PodWatch, PodsStatus, Reason};
use infertap_core::pods::Pods;
use infertap_tests::receive::Request;
use infertap_tests::receive::kubernetes::{Cluster, Cut, pod};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A cluster, and what is known of it.
struct Bench {
    cluster: Cluster,
    pods: Arc<Mutex<Pods>>,
    status: Arc<PodsStatus>,
    watch: PodWatch,
    _runtime: tokio::runtime::Runtime,
}

fn bench(cluster: Cluster, set: impl FnOnce(&mut KubernetesSection)) -> Bench {
    let mut section = KubernetesSection {
        enabled: true,
        endpoint: cluster.url(),
        bearer_token_file: std::path::PathBuf::new(),
        ca_file: std::path::PathBuf::new(),
        ..KubernetesSection::default()
    };
    set(&mut section);
    assert_eq!(section.invalid(), []);
    let (pods, status) = (
        Arc::new(Mutex::new(Pods::new(section.max_pods))),
        Arc::<PodsStatus>::default(),
    );
    let taken = Arc::clone(&pods);
    let sink = Arc::new(move |batch: PodBatch| {
        let mut pods = taken.lock().expect("no panic");
        batch.changes.iter().for_each(|change| pods.apply(change));
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let link = section.link(|_| None).expect("an endpoint");
    let watch = {
        let _inside = runtime.enter();
        PodWatch::start(&section, &link, &[], &status, sink).expect("starts")
    };
    Bench {
        cluster,
        pods,
        status,
        watch,
        _runtime: runtime,
    }
}

impl Bench {
    /// `namespace/name` at an address.
    fn at(&self, address: &str) -> Option<String> {
        let pods = self.pods.lock().expect("no panic");
        let pod = pods.of(address.parse().expect("an address"))?;
        Some(format!("{}/{}", pod.namespace, pod.name))
    }

    fn wait(&self, what: &str, done: impl Fn(&Bench) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{what}: {:#?}",
                self.status
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_at(&self, address: &str, expected: Option<&str>) {
        self.wait(&format!("{address} is not {expected:?}"), |bench| {
            bench.at(address).as_deref() == expected
        });
    }

    fn asked(&self, which: impl Fn(&Request) -> bool) -> Vec<Request> {
        self.cluster.requests().into_iter().filter(which).collect()
    }
}

fn is_watch(request: &Request) -> bool {
    request.query.contains_key("watch")
}

fn value<'r>(request: &'r Request, name: &str) -> &'r str {
    request.query.get(name).map_or("-", String::as_str)
}

#[test]
fn pods_are_known_from_the_list_on_and_what_changes_is_followed() {
    let cluster = Cluster::start().expect("starts");
    cluster.apply(pod("a", "one", "10.0.0.1"));
    let mut ended = pod("a", "ended", "10.0.0.2");
    ended["status"]["phase"] = "Succeeded".into();
    cluster.apply(ended);
    let mut on_host = pod("a", "host", "10.0.0.3");
    on_host["spec"]["hostNetwork"] = true.into();
    cluster.apply(on_host);
    let bench = bench(cluster, |_| {});
    bench.wait_at("10.0.0.1", Some("a/one"));
    bench.cluster.apply(pod("b", "two", "10.0.0.2"));
    bench.wait_at("10.0.0.2", Some("b/two"));
    assert_eq!(bench.at("10.0.0.3"), None);
    // Its address is another's once it has ended.
    let mut one = pod("a", "one", "10.0.0.1");
    one["status"]["phase"] = "Failed".into();
    bench.cluster.apply(one);
    bench.wait_at("10.0.0.1", None);
    bench.cluster.delete("b", "two");
    bench.wait_at("10.0.0.2", None);
    let first = &bench.cluster.requests()[0];
    assert_eq!(
        [value(first, "resourceVersion"), value(first, "watch")],
        ["0", "-"],
        "the first list comes out of the server's memory"
    );
    assert_eq!(bench.asked(is_watch).len(), 1);
    assert!(bench.status.told_at().is_some());
    assert!(Reason::ALL.iter().all(|reason| bench.status.errors(*reason) == 0));
}

#[test]
fn a_watch_that_ends_is_taken_up_where_it_was() {
    let cluster = Cluster::start().expect("starts");
    cluster.apply(pod("a", "one", "10.0.0.1"));
    let bench = bench(cluster, |_| {});
    bench.wait_at("10.0.0.1", Some("a/one"));
    bench.wait("no watch", |bench| bench.asked(is_watch).len() == 1);
    // A bookmark tells how far it is: version 102 of a cluster that began at 100.
    bench.cluster.bookmark();
    bench.cluster.cut(Cut::Clean);
    bench.wait("no second watch", |bench| bench.asked(is_watch).len() == 2);
    let versions = || {
        bench
            .asked(is_watch)
            .iter()
            .map(|r| value(r, "resourceVersion").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(versions(), ["101", "102"]);
    // Half a line is no line: the pod is told again.
    bench
        .cluster
        .apply_and_cut(pod("a", "two", "10.0.0.2"), Cut::Torn);
    bench.wait_at("10.0.0.2", Some("a/two"));
    assert_eq!(versions(), ["101", "102", "102"]);
    assert_eq!(bench.status.errors(Reason::Connection), 1);
    assert_eq!(
        bench.asked(|request| !is_watch(request)).len(),
        1,
        "one list was enough"
    );
}

#[test]
fn after_too_old_and_after_garbage_all_pods_are_asked_for_again() {
    let cluster = Cluster::start().expect("starts");
    cluster.apply(pod("a", "one", "10.0.0.1"));
    cluster.apply(pod("a", "two", "10.0.0.2"));
    let bench = bench(cluster, |_| {});
    bench.wait_at("10.0.0.2", Some("a/two"));
    bench.wait("no watch", |bench| bench.asked(is_watch).len() == 1);
    // Nobody tells that it is gone: the list does, by not having it.
    bench.cluster.delete_and_forget("a", "one");
    bench.wait_at("10.0.0.1", None);
    assert_eq!(bench.at("10.0.0.2").as_deref(), Some("a/two"));
    assert_eq!(bench.status.errors(Reason::Expired), 1);
    let lists = bench.asked(|request| !is_watch(request));
    assert_eq!(
        value(&lists[1], "resourceVersion"),
        "-",
        "what the server has in memory was too old"
    );
    bench.wait("no watch", |bench| bench.asked(is_watch).len() == 2);
    bench
        .cluster
        .apply_and_cut(pod("a", "three", "10.0.0.3"), Cut::Garbage);
    bench.wait_at("10.0.0.3", Some("a/three"));
    assert_eq!(bench.status.errors(Reason::Malformed), 1);
}

#[test]
fn a_large_cluster_comes_in_pages_or_as_a_whole() {
    for pages in [false, true] {
        let cluster = Cluster::start().expect("starts");
        cluster.rules(|rules| rules.pages_always = pages);
        for n in 0..1_234 {
            let mut pod = pod("a", &format!("p{n}"), &format!("10.1.{}.{}", n / 256, n % 256));
            pod["metadata"]["annotations"]["note"] = "items: [{ \"".repeat(300).into();
            cluster.apply(pod);
        }
        let bench = bench(cluster, |section| section.max_pods = 1_000);
        bench.wait("not all are told", |bench| bench.asked(is_watch).len() == 1);
        let stats = bench.pods.lock().expect("no panic").stats();
        assert_eq!((stats.pods, stats.refused), (1_000, 234));
        assert_eq!(
            bench.asked(|request| !is_watch(request)).len(),
            if pages { 3 } else { 1 }
        );
        assert!(Reason::ALL.iter().all(|reason| bench.status.errors(*reason) == 0));
    }
}

#[test]
fn what_is_refused_is_counted_by_reason_and_asked_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "old\n").expect("writes");
    let cluster = Cluster::start().expect("starts");
    cluster.apply(pod("a", "one", "10.0.0.1"));
    cluster.rules(|rules| {
        rules.token = "new".to_owned();
        rules.forbidden = true;
    });
    let bench = bench(cluster, |section| section.bearer_token_file.clone_from(&token));
    bench.wait("401", |bench| bench.status.errors(Reason::Unauthorized) > 0);
    std::fs::write(&token, "new\n").expect("writes");
    bench.wait("403", |bench| bench.status.errors(Reason::Forbidden) > 0);
    assert_eq!(bench.at("10.0.0.1"), None);
    bench.cluster.rules(|rules| {
        rules.forbidden = false;
        rules.answers = vec![
            (429, "slow down".to_owned()),
            (
                200,
                "{\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"metadata\"".to_owned(),
            ),
        ];
    });
    bench.wait_at("10.0.0.1", Some("a/one"));
    assert_eq!(bench.status.errors(Reason::Throttled), 1);
    assert_eq!(bench.status.errors(Reason::Malformed), 1);
}

#[test]
fn namespaces_selectors_and_labels_are_asked_for_as_configured() {
    let cluster = Cluster::start().expect("starts");
    let labelled = |namespace: &str, ip: &str, team: &str| {
        let mut pod = pod(namespace, "p", ip);
        pod["metadata"]["labels"] = serde_json::json!({"team": team, "app": "chat"});
        pod
    };
    cluster.apply(labelled("a", "10.0.0.1", "x"));
    cluster.apply(labelled("b", "10.0.0.2", "x"));
    cluster.apply(labelled("c", "10.0.0.3", "x"));
    cluster.apply(pod("a", "other", "10.0.0.4"));
    let bench = bench(cluster, |section| {
        section.namespaces = vec!["a".to_owned(), "b".to_owned()];
        section.label_selector = "app=chat".to_owned();
    });
    bench.wait_at("10.0.0.1", Some("a/p"));
    bench.wait_at("10.0.0.2", Some("b/p"));
    assert_eq!((bench.at("10.0.0.3"), bench.at("10.0.0.4")), (None, None));
    let label = |bench: &Bench, address: &str| {
        let pods = bench.pods.lock().expect("no panic");
        let pod = pods.of(address.parse().expect("an address"))?;
        pod.label("team").map(str::to_owned)
    };
    assert_eq!(label(&bench, "10.0.0.1"), None, "nobody has asked for it");
    bench.watch.want_labels(&["team".to_owned()]);
    for address in ["10.0.0.1", "10.0.0.2"] {
        bench.wait("no label", |bench| label(bench, address).as_deref() == Some("x"));
    }
    let asked = bench.cluster.requests().len();
    bench.watch.want_labels(&["team".to_owned()]);
    bench.cluster.apply(labelled("a", "10.0.0.1", "y"));
    bench.wait("no change", |bench| {
        label(bench, "10.0.0.1").as_deref() == Some("y")
    });
    let lists = bench.cluster.requests().split_off(asked);
    assert!(lists.iter().all(is_watch), "the same labels need no other list");
}
