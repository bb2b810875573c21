//! Which rule a request matches, and what its scene is called.
//!
//! Owns: cases and properties of the rules. Refuses: when a request is told as started.

use super::*;
use crate::client::Client;
use crate::pods::{Pod, Workload};
use crate::wire::http1::{Decoder, Head, HttpEvent, RequestHead};
use proptest::prelude::*;

fn head(headers: &[(&str, &str)]) -> RequestHead {
    RequestHead {
        method: "POST".into(),
        target: "/team/v1/chat/completions?x=1".into(),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        api_key: Some(fingerprint(b"sk-secret")),
    }
}

/// 203.0.113.9, a pod of a Deployment.
fn client() -> Client {
    Client {
        address: "203.0.113.9".parse().ok(),
        pod: Some(Arc::new(Pod {
            namespace: "shop".into(),
            name: "search-api-6d4cf56db6-x2v9k".into(),
            workload: Some(Workload {
                kind: "Deployment".into(),
                name: "search-api".into(),
            }),
            labels: vec![
                ("app.kubernetes.io/name".into(), "search".into()),
                ("canary".into(), "".into()),
            ],
        })),
    }
}

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

/// The scene by one rule named `s`, once everything is known.
fn by_one(text: RuleText<'_>, body: &str) -> String {
    let rule = RuleText {
        name: text.from.is_none().then_some("s"),
        ..text
    };
    let rules = SceneRules::new(vec![rule.rule().unwrap()]).unwrap();
    let head = head(&[("host", "LLM.example.com:8000"), ("x-team", "search")]);
    let mut facts = SceneFacts::of_head(&rules, &head, client());
    facts.feed(body.as_bytes());
    rules
        .scene(&facts, Some("llama-3-8b"), Some("vllm-8000"), true)
        .unwrap()
        .to_string()
}

#[test]
fn every_field_can_be_asked_for() {
    let system =
        r#"{"messages":[{"role":"system","content":"You are kind."},{"role":"user","content":"x"}]}"#;
    let parts = r#"{"messages":[{"content":[{"type":"text","text":"You are kind."}],"role":"developer"}]}"#;
    let user = r#"{"messages":[{"role":"user","content":"You are kind."}]}"#;
    let late = r#"{"messages":[{"role":"user","content":"x"},{"role":"system","content":"You are kind."}]}"#;
    let metadata = r#"{"metadata":{"app":"chat-eu","n":3,"on":true,"none":null},"user":"u1"}"#;
    let kind = format!("sha256:{}", hex(&fingerprint(b"You are kind.")));
    let key = format!("sha256:{}", &hex(&fingerprint(b"sk-secret"))[..12]);
    for (key_of_rule, patterns, body, matches) in [
        ("header", "X-Team=sea*", "", true),
        ("header", "x-team", "", true),
        ("header", "x-team=other", "", false),
        ("header", "x-absent", "", false),
        ("path", "/team/*", "", true),
        ("path", "*x=1", "", false),
        ("host", "*.EXAMPLE.com", "", true),
        ("api_key", &key, "", true),
        ("api_key", "sha256:000000000000", "", false),
        ("body", "metadata.app=chat-*", metadata, true),
        ("body", "metadata.n=3", metadata, true),
        ("body", "metadata.on=true", metadata, true),
        ("body", "metadata.none", metadata, false),
        ("body", "user", metadata, true),
        ("body", "user", "", false),
        ("system_prompt", &kind, system, true),
        ("system_prompt", &kind, parts, true),
        ("system_prompt", &kind, user, false),
        ("system_prompt", &kind, late, false),
        ("system_prompt", &kind, r#"{"system":"You are kind."}"#, true),
        ("client", "203.0.113.0/24", "", true),
        ("client", "203.0.113.9", "", true),
        ("client", "203.0.113.8", "", false),
        ("client", "2001:db8::/32", "", false),
        ("client_namespace", "shop", "", true),
        ("client_namespace", "shop-*", "", false),
        ("client_pod", "search-api-*", "", true),
        ("client_pod", "search-api", "", false),
        ("client_workload", "search-api", "", true),
        ("client_workload", "Deployment*", "", false),
        ("client_label", "app.kubernetes.io/name=sea*", "", true),
        ("client_label", "app.kubernetes.io/name=shop", "", false),
        ("client_label", "canary", "", true),
        ("client_label", "team", "", false),
        ("engine", "vllm-*", "", true),
        ("model", "llama-3-*", "", true),
        ("model", "llama-3", "", false),
    ] {
        let patterns = list(&[patterns]);
        let mut text = RuleText::default();
        let slot = match key_of_rule {
            "header" => &mut text.header,
            "path" => &mut text.path,
            "host" => &mut text.host,
            "api_key" => &mut text.api_key,
            "body" => &mut text.body,
            "system_prompt" => &mut text.system_prompt,
            "client" => &mut text.client,
            "client_namespace" => &mut text.client_namespace,
            "client_pod" => &mut text.client_pod,
            "client_workload" => &mut text.client_workload,
            "client_label" => &mut text.client_label,
            "engine" => &mut text.engine,
            _ => &mut text.model,
        };
        *slot = &patterns;
        let expected = if matches { "s" } else { DEFAULT_SCENE };
        assert_eq!(by_one(text, body), expected, "{key_of_rule} {patterns:?} {body}");
    }
}

#[test]
fn a_scene_may_be_named_after_a_value() {
    let body = r#"{"metadata":{"app":" chat "},"messages":[{"role":"system","content":"Be brief."}]}"#;
    let key = format!("key-{}", &hex(&fingerprint(b"sk-secret"))[..12]);
    let prompt = format!("prompt-{}", &hex(&fingerprint(b"Be brief."))[..12]);
    for (from, expected) in [
        ("header:X-Team", "search"),
        ("header:x-absent", DEFAULT_SCENE),
        ("body:metadata.app", "chat"),
        ("body:metadata", DEFAULT_SCENE),
        ("path", "/team/v1/chat/completions"),
        ("host", "llm.example.com"),
        ("api_key", &key),
        ("system_prompt", &prompt),
        ("client", "203.0.113.9"),
        ("client_namespace", "shop"),
        ("client_pod", "search-api-6d4cf56db6-x2v9k"),
        ("client_workload", "search-api"),
        ("client_label:app.kubernetes.io/name", "search"),
        ("client_label:canary", DEFAULT_SCENE),
        ("client_label:team", DEFAULT_SCENE),
        ("engine", "vllm-8000"),
        ("model", "llama-3-8b"),
    ] {
        let text = RuleText {
            from: Some(from),
            ..RuleText::default()
        };
        assert_eq!(by_one(text, body), expected, "{from}");
    }
}

#[test]
fn kinds_of_patterns_must_all_match_and_one_of_each_suffices() {
    let (header, path) = (list(&["x-team=a", "x-team=search"]), list(&["/team/*"]));
    let both = RuleText {
        header: &header,
        path: &path,
        ..RuleText::default()
    };
    assert_eq!(by_one(both, ""), "s");
    let two_fields = list(&["x-team=search", "x-absent"]);
    let text = RuleText {
        header: &two_fields,
        ..both
    };
    assert_eq!(by_one(text, ""), DEFAULT_SCENE);
}

#[test]
fn mistakes_are_named() {
    let texts = |text: RuleText<'_>| text.rule().unwrap_err();
    let named = RuleText {
        name: Some("s"),
        ..RuleText::default()
    };
    let one = |item: &str| list(&[item]);
    let mut all = vec![
        texts(RuleText::default()),
        texts(RuleText {
            from: Some("path"),
            ..named
        }),
        texts(RuleText {
            name: Some(" s"),
            ..RuleText::default()
        }),
        texts(RuleText {
            from: Some("colour"),
            ..RuleText::default()
        }),
        texts(RuleText {
            from: Some("header:Authorization"),
            ..RuleText::default()
        }),
    ];
    for header in ["x team=1", "=1", "x-api-key=sk", "x-team="] {
        all.push(texts(RuleText {
            header: &one(header),
            ..named
        }));
    }
    for body in ["metadata..x=1", "a.b.c.d.e.f.g.h.i"] {
        all.push(texts(RuleText {
            body: &one(body),
            ..named
        }));
    }
    for key in ["sk-my-secret", "sha256:abc", "sha256:ABCDEF012345"] {
        all.push(texts(RuleText {
            api_key: &one(key),
            ..named
        }));
    }
    for client in ["10.1.0.0/8", "proxy.example.com"] {
        all.push(texts(RuleText {
            client: &one(client),
            ..named
        }));
    }
    for label in ["a/b/c=1", "team search", "=x", "team="] {
        all.push(texts(RuleText {
            client_label: &one(label),
            ..named
        }));
    }
    assert!(all.iter().all(|message| !message.contains("sk-my-secret")));
    expect_test::expect![[r#"
        it names no scene: give name, or from
        it has both name and from: give one of them
        name = " s" is no name for a scene: write 1 to 128 bytes without control characters or spaces around them
        from = "colour" is nothing that a scene can be named after: write header:NAME, body:PATH, path, host, api_key, system_prompt, client, client_namespace, client_pod, client_workload, client_label:NAME, engine or model
        the header authorization carries a credential, which is never read: match its fingerprint with api_key
        "x team" is no name of a header: write as in header = ["x-team=search*"]
        "" is no name of a header: write as in header = ["x-team=search*"]
        the header x-api-key carries a credential, which is never read: match its fingerprint with api_key
        header has an empty pattern: write * for any value
        "metadata..x" is no field of a body: write names with dots between, at most 8, as in body = ["metadata.app=search*"]
        "a.b.c.d.e.f.g.h.i" is no field of a body: write names with dots between, at most 8, as in body = ["metadata.app=search*"]
        api_key has a value that is no fingerprint: write "sha256:" and 12 to 64 lower-case hexadecimal digits, as `infertap config hash` prints them
        api_key has a value that is no fingerprint: write "sha256:" and 12 to 64 lower-case hexadecimal digits, as `infertap config hash` prints them
        api_key has a value that is no fingerprint: write "sha256:" and 12 to 64 lower-case hexadecimal digits, as `infertap config hash` prints them
        client: "10.1.0.0/8" has bits set past its length: write 10.0.0.0/8
        client: "proxy.example.com" is no network: write an address, or an address and a length, as in "10.0.0.0/8" or "2001:db8::/32"
        "a/b/c" is no name of a pod's label: write as in client_label = ["app.kubernetes.io/name=search*"]
        "team search" is no name of a pod's label: write as in client_label = ["app.kubernetes.io/name=search*"]
        "" is no name of a pod's label: write as in client_label = ["app.kubernetes.io/name=search*"]
        client_label has an empty pattern: write * for any value"#]]
    .assert_eq(&all.join("\n"));

    let rule = || named.rule().unwrap();
    let refused = SceneRules::new(vec![rule(), rule()]).unwrap_err();
    assert_eq!(refused.rule, 1);
    assert!(refused.reason.contains("never match"), "{refused}");
    let paths: Vec<String> = (0..=MAX_BODY_PATHS).map(|n| format!("metadata.k{n}")).collect();
    let greedy = RuleText {
        body: &paths,
        ..named
    };
    let refused = SceneRules::new(vec![greedy.rule().unwrap()]).unwrap_err();
    assert!(refused.reason.contains("more than 48"), "{refused}");
    let labels: Vec<String> = (0..=MAX_POD_LABELS).map(|n| format!("l{n}")).collect();
    let greedy = RuleText {
        client_label: &labels,
        ..named
    };
    let refused = SceneRules::new(vec![greedy.rule().unwrap()]).unwrap_err();
    assert!(refused.reason.contains("more than 16"), "{refused}");
}

#[test]
fn a_key_is_known_by_its_fingerprint_alone() {
    for (field, key) in [
        ("Authorization: Bearer sk-1", Some("sk-1")),
        ("authorization:  bearer   sk-1 ", Some("sk-1")),
        ("Authorization: sk-1", Some("sk-1")),
        ("X-Api-Key: sk-1", Some("sk-1")),
        ("api-key: sk-1\r\nAuthorization: Bearer sk-2", Some("sk-2")),
        ("Authorization: Bearer ", Some("Bearer")),
        ("Cookie: sk-1", None),
    ] {
        let mut found = None;
        let request = format!("POST /v1/completions HTTP/1.1\r\n{field}\r\n\r\n");
        Decoder::request().feed(request.as_bytes(), &mut |event| {
            if let HttpEvent::Head {
                head: Head::Request(head),
                ..
            } = event
            {
                assert!(!format!("{head:?}").contains("sk-"), "{head:?}");
                found = Some(head.api_key);
            }
        });
        assert_eq!(found, Some(key.map(|key| fingerprint(key.as_bytes()))), "{field}");
    }
}

/// Rules by small numbers: which field, and whether the pattern fits the request of the property below.
fn rule_of(index: usize, (field, fits, from): (u8, bool, bool)) -> Rule {
    let value = if fits { "v" } else { "w" };
    let name = format!("s{index}");
    let (header, body) = (
        [format!("x-{}={value}", field % 3)],
        [format!("metadata.k{}={value}", field % 3)],
    );
    let model = [value.to_owned()];
    let mut text = RuleText {
        name: (!from).then_some(name.as_str()),
        from: from.then_some("body:user"),
        ..RuleText::default()
    };
    match field {
        0..3 => text.header = &header,
        3..6 => text.body = &body,
        _ => text.model = &model,
    }
    text.rule().unwrap()
}

proptest! {
    /// The first rule that matches decides, and an answer that is given before the body is over is the final one.
    #[test]
    fn the_first_that_matches_decides_as_soon_as_it_is_certain(
        specs in proptest::collection::vec((0u8..7, any::<bool>(), any::<bool>()), 0..6),
        keys in proptest::collection::vec((0u8..3, any::<bool>()), 0..4),
        user in any::<bool>(),
        cuts in proptest::collection::vec(0usize..200, 0..5),
    ) {
        let rules: Vec<Rule> = specs.iter().enumerate().map(|(index, spec)| rule_of(index, *spec)).collect();
        let rules = SceneRules::new(rules).unwrap();
        let head = head(&[("x-0", "v"), ("x-1", "w")]);
        // The first of several values counts.
        let mut metadata: Vec<(u8, &str)> = Vec::new();
        for (key, fits) in &keys {
            if !metadata.iter().any(|(known, _)| known == key) {
                metadata.push((*key, if *fits { "v" } else { "w" }));
            }
        }
        let members: Vec<String> = metadata.iter().map(|(key, value)| format!(r#""k{key}":"{value}""#)).collect();
        let user_member = if user { r#","user":"u""# } else { "" };
        let body = format!(r#"{{"metadata":{{{}}}{user_member}}}"#, members.join(","));

        let value = |field: u8| match field {
            0 | 6 => Some("v"),
            1 => Some("w"),
            3..6 => metadata.iter().find(|(key, _)| *key == field % 3).map(|(_, value)| *value),
            _ => None,
        };
        let expected = specs.iter().enumerate().find_map(|(index, (field, fits, from))| {
            let matches = value(*field) == Some(if *fits { "v" } else { "w" });
            match (matches, from) {
                (true, false) => Some(format!("s{index}")),
                (true, true) if user => Some("u".to_owned()),
                _ => None,
            }
        }).unwrap_or_else(|| DEFAULT_SCENE.to_owned());

        let mut facts = SceneFacts::of_head(&rules, &head, client());
        let mut early = rules.scene(&facts, None, None, false);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        for range in cuts.windows(2) {
            facts.feed(&body.as_bytes()[range[0]..range[1]]);
            early = early.or_else(|| rules.scene(&facts, Some("v"), None, false));
        }
        let last = rules.scene(&facts, Some("v"), None, true).unwrap();
        prop_assert_eq!(&*last, expected.as_str());
        if let Some(early) = early {
            prop_assert_eq!(early, last);
        }
    }

    /// A pattern without a star or a question mark fits itself alone, and stars fit anything.
    #[test]
    fn patterns_fit(text in "[a-c]{0,8}", other in "[a-c]{0,8}", at in 0usize..9) {
        prop_assert_eq!(glob(&text, &other), text == other);
        let at = at.min(text.len());
        let starred = [&text[..at], "*", &text[at..]].concat();
        prop_assert!(glob(&starred, &text));
        let wild = format!("{}*", &text[..at]);
        prop_assert_eq!(glob(&wild, &other), other.starts_with(&text[..at]));
    }
}
