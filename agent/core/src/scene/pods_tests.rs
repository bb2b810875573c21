//! What rules want to know of clients' pods.
//!
//! Owns: the list that whoever asks for pods goes by. Refuses: matching (`tests`).

use super::*;

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

#[test]
fn rules_tell_what_they_want_to_know_of_pods() {
    let (label, namespace) = (list(&["team=a", "team=b", "app"]), list(&["shop"]));
    let named = |rule: RuleText<'_>| {
        let rule = RuleText {
            name: Some("s"),
            ..rule
        };
        rule.rule().unwrap()
    };
    let host = list(&["a"]);
    let by_host = RuleText {
        host: &host,
        ..RuleText::default()
    };
    let rules = SceneRules::new(vec![
        named(by_host),
        named(RuleText {
            client_namespace: &namespace,
            ..RuleText::default()
        }),
        named(RuleText {
            client_label: &label,
            ..RuleText::default()
        }),
    ])
    .unwrap();
    assert_eq!(rules.pod_labels(), ["app", "team"]);
    assert_eq!(rules.first_by_pod(), Some(1));
    let none = SceneRules::new(vec![named(by_host)]).unwrap();
    assert_eq!((none.pod_labels().len(), none.first_by_pod()), (0, None));
}
