//! Clients that are pods: named on records, matched by scene rules, before and after rules are read again.
//!
//! Owns: the way from the API server's lines to a request's scene. Refuses: the protocol's turns (`kubernetes`).

use super::clients::{from, ip};
use super::*;
use infertap_tests::receive::kubernetes::{Cluster, pod};

fn config(cluster: &Cluster, rules: &str) -> String {
    let url = cluster.url();
    format!(
        "[kubernetes]\nenabled = true\nendpoint = \"{url}\"\nbearer_token_file = \"\"\nca_file = \"\"\n{rules}"
    )
}

#[test]
fn a_client_is_the_pod_that_has_its_address() {
    let cluster = Cluster::start().unwrap();
    let mut batch = pod("jobs", "batch-7", "127.0.0.2");
    batch["metadata"]["labels"] = json!({"team": "ads"});
    batch["metadata"]["ownerReferences"] = json!([{"kind": "Job", "name": "batch", "controller": true}]);
    cluster.apply(batch.clone());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("infertap.toml");
    let by_name =
        "[[scene]]\nname = \"nightly\"\nclient_namespace = [\"jobs\"]\nclient_pod = [\"batch-*\"]\n";
    std::fs::write(&file, config(&cluster, by_name)).unwrap();
    let server = server(folder.path(), &["--listen", "127.0.0.1:0"]);
    let (agent, engine) = watch(folder.path(), &server, &["--config", file.to_str().unwrap()]);
    let known = |agent: &Agent, count: f64| {
        wait(agent, "the pods are not known", || {
            (agent.metrics().unwrap().sum("infertap_kubernetes_pods", &[]) - count).abs() < 0.5
        });
    };
    known(&agent, 1.0);
    // It takes the accept that the server was waiting in.
    drop(server.address.connect().unwrap());
    let mut asked = 0;
    // Pod, workload and scene of a request from this address.
    let mut told = |source: &str| {
        let truth = from(ip(source), &server.address).exchange(&Plan {
            index: asked,
            ..scripted(&json!({"chunks": 3}), true)
        });
        asked += 1;
        let records = agent
            .wait_requests(asked, Duration::from_secs(5), |record| record.engine == engine)
            .unwrap();
        let record = agent.the_record(&records, &truth, |record| record.response_id == truth.response_id);
        let parts = [
            &record.client_namespace,
            &record.client_pod,
            &record.client_workload_kind,
            &record.client_workload,
            &record.scene,
        ];
        parts.map(|part| part.clone().unwrap_or("-".to_owned())).join(" ")
    };
    assert_eq!(told("127.0.0.2"), "jobs batch-7 Job batch nightly");
    assert_eq!(told("127.0.0.3"), "- - - - default");
    cluster.apply(pod("shop", "api-1", "127.0.0.3"));
    known(&agent, 2.0);
    assert_eq!(told("127.0.0.3"), "shop api-1 - - default");
    // Other rules, by a label that was not asked for until now.
    let by_label = "[[scene]]\nfrom = \"client_label:team\"\n[[scene]]\nfrom = \"client_namespace\"\n";
    std::fs::write(&file, config(&cluster, by_label)).unwrap();
    wait(&agent, "the rules are not read", || {
        agent
            .metrics()
            .unwrap()
            .sum("infertap_config_reloads_total", &[("outcome", "applied")])
            > 0.5
    });
    let lists = || {
        let requests = cluster.requests();
        requests
            .iter()
            .filter(|request| !request.query.contains_key("watch"))
            .count()
    };
    wait(&agent, "the pods are not asked for again", || lists() > 1);
    // Told behind the list, so that the list was taken when this is known.
    cluster.apply(pod("shop", "api-2", "127.0.0.4"));
    known(&agent, 3.0);
    assert_eq!(told("127.0.0.2"), "jobs batch-7 Job batch ads");
    assert_eq!(told("127.0.0.3"), "shop api-1 - - shop");
    // The address is another pod's now.
    cluster.delete("jobs", "batch-7");
    known(&agent, 2.0);
    assert_eq!(told("127.0.0.2"), "- - - - default");
}
