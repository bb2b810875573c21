//! Configurations of destinations that are refused, and credentials that are read.

use super::*;

crate::destination_section! {
    /// A section.
    struct FakeConfig {
        /// A key of its own.
        own: u64 = 1,
    }
}

fn link(change: impl FnOnce(&mut LinkConfig)) -> LinkConfig {
    let mut link = FakeConfig::default().link();
    link.endpoint = "https://collector:4318".to_owned();
    change(&mut link);
    link
}

#[test]
fn mistakes_are_named_and_secrets_are_not_repeated() {
    use crate::config::Section as _;
    type Change = fn(&mut LinkConfig);
    assert_eq!(FakeConfig::KEYS.iter().filter(|key| key.name == "own").count(), 1);
    assert_eq!(FakeConfig::default().link().invalid("x"), []);
    assert!(!FakeConfig::default().link().on());
    let cases: [(&str, Change); 25] = [
        ("endpoint", |link| link.endpoint = "collector:4318".into()),
        ("endpoint", |link| link.endpoint = "ftp://collector".into()),
        ("endpoint", |link| link.endpoint = "http://".into()),
        ("endpoint", |link| {
            link.endpoint = "http://ann:hunter2@collector".into();
        }),
        ("endpoint", |link| {
            link.endpoint = "http://hunter2@collector".into();
        }),
        ("endpoint", |link| {
            link.endpoint = "http://collector/?key=hunter2".into();
        }),
        ("headers", |link| {
            drop(link.headers.insert("X-Api-Key".into(), "hunter2".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("Authorization".into(), "hunter2".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("X-Honeycomb-Team".into(), "hunter2".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("uptrace-dsn".into(), "hunter2".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("ingestion_key".into(), "hunter2".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("a b".into(), "c".into()));
        }),
        ("headers", |link| {
            drop(link.headers.insert("a".into(), "b\nc".into()));
        }),
        ("header_files", |link| {
            drop(link.header_files.insert("a".into(), "hunter2".into()));
        }),
        ("bearer_token_file", |link| {
            link.bearer_token_file = "hunter2".into();
        }),
        ("basic_auth_file", |link| {
            link.basic_auth_file = "ann:hunter2".into();
        }),
        ("basic_auth_file", |link| {
            link.bearer_token_file = "/token".into();
            link.basic_auth_file = "/pair".into();
        }),
        ("key_file", |link| link.cert_file = "/cert".into()),
        ("server_name", |link| link.server_name = "a b".into()),
        ("server_name", |link| link.server_name = "192.0.2.1".into()),
        ("server_name", |link| link.server_name = "0x7f.1".into()),
        ("server_name", |link| link.server_name = "[::1]".into()),
        ("timeout", |link| link.timeout = Span::millis(99)),
        ("batch_records", |link| link.batch_records = 0),
        ("queue_bytes", |link| link.queue_bytes = Size::bytes(1)),
    ];
    for (key, change) in cases {
        let invalid = link(change).invalid("x");
        let keys: Vec<&str> = invalid.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, [format!("x.{key}")], "{invalid:?}");
        assert!(!invalid[0].1.contains("hunter2"), "{invalid:?}");
    }
    assert_eq!(
        link(|link| link.endpoint = "http://[::1]:4318/otlp/".into()).invalid("x"),
        []
    );
}

#[test]
fn credentials_are_read_anew_and_are_marked_secret() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("writes");
        path
    };
    let token = file("token", "first\n");
    let bearer = link(|link| {
        link.bearer_token_file.clone_from(&token);
        link.headers.insert("X-Scope-OrgID".into(), "team-a".into());
        link.header_files.insert("X-Api-Key".into(), file("key", "k3y"));
    });
    assert_eq!(bearer.invalid("x"), []);
    let headers = bearer.request_headers().expect("reads");
    assert_eq!(headers[AUTHORIZATION], "Bearer first");
    assert_eq!(
        (&headers["x-scope-orgid"], &headers["x-api-key"]),
        (
            &"team-a".parse().expect("a value"),
            &"k3y".parse().expect("a value")
        )
    );
    // Those that are given in the configuration too: what they are is not known by their names.
    assert!(headers.values().all(HeaderValue::is_sensitive));
    assert!(!format!("{bearer:?}").contains("team-a"), "{bearer:?}");
    file("token", "second");
    assert_eq!(
        bearer.request_headers().expect("reads")[AUTHORIZATION],
        "Bearer second"
    );
    for (text, reason) in [
        ("", "is empty"),
        ("a\nb", "more than one line"),
        (&"a".repeat(70_000), "too large"),
    ] {
        file("token", text);
        let error = bearer.request_headers().expect_err("refused");
        assert!(error.contains(reason) && error.contains("/token"), "{error}");
    }
    std::fs::remove_file(&token).expect("removes");
    assert!(
        bearer
            .request_headers()
            .expect_err("gone")
            .contains("can't be read")
    );

    let basic = link(|link| link.basic_auth_file = file("pair", "ann:hunter2\n"));
    assert_eq!(
        basic.request_headers().expect("reads")[AUTHORIZATION],
        "Basic YW5uOmh1bnRlcjI="
    );
    file("pair", "ann");
    assert!(
        basic
            .request_headers()
            .expect_err("no pair")
            .contains("USER:PASSWORD")
    );
}
