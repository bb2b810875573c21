//! What the overlay that asks for pods gives the agent.
//!
//! Owns: its rights and its command line. Refuses: kustomizations as such (`packaging`).

use crate::packaging::{added, container, daemonset, document, run_arguments, strings};

#[test]
fn to_know_pods_it_may_list_and_watch_them_and_no_more() {
    let folder = "deploy/kubernetes/overlays/pods";
    let role = document(&format!("{folder}/clusterrole.yaml"));
    let rules = role["rules"].as_array().expect("rules");
    assert_eq!(rules.len(), 1);
    assert_eq!(strings(&rules[0]["apiGroups"]), [""]);
    assert_eq!(strings(&rules[0]["resources"]), ["pods"]);
    assert_eq!(strings(&rules[0]["verbs"]), ["list", "watch"]);
    let binding = document(&format!("{folder}/clusterrolebinding.yaml"));
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    assert_eq!(binding["roleRef"]["kind"], role["kind"]);
    let account = document("deploy/kubernetes/base/serviceaccount.yaml");
    let subject = &binding["subjects"][0];
    assert_eq!(subject["kind"], account["kind"]);
    assert_eq!(subject["name"], account["metadata"]["name"]);
    let namespace = &document("deploy/kubernetes/base/kustomization.yaml")["namespace"];
    assert_eq!(&subject["namespace"], namespace);
    assert_eq!(
        daemonset()["spec"]["template"]["spec"]["serviceAccountName"],
        subject["name"]
    );

    let patch = document(&format!("{folder}/watch-pods.yaml"));
    let token = &patch.as_array().expect("operations")[0];
    assert_eq!(token["path"], "/spec/template/spec/automountServiceAccountToken");
    assert_eq!(token["value"], true);
    let mut arguments = strings(&container(&daemonset())["args"]);
    arguments.extend(added(&format!("{folder}/watch-pods.yaml"), "/args/-"));
    let run = run_arguments(&arguments);
    assert_eq!(
        run.settings.set,
        [("kubernetes.enabled".to_owned(), "true".to_owned())]
    );
}
