//! Tests of the configuration: layers, mistakes, and that sample and reference are what the code says.

use super::*;
use expect_test::{Expect, expect, expect_file};
use std::path::{Path, PathBuf};

const NO_ENV: [(String, String); 0] = [];

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("infertap.toml");
    std::fs::write(&path, text).expect("write");
    (dir, path)
}

/// The mistakes of a file, without the directory.
fn mistakes(text: &str, expected: &Expect) {
    let (dir, path) = file(text);
    let problems = check_file(&path).expect_err("refused");
    let prefix = format!("{}/", dir.path().display());
    let lines: Vec<_> = problems
        .0
        .iter()
        .map(|p| p.to_string().replace(&prefix, ""))
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn the_sample_file_is_the_defaults_with_every_key_documented() {
    expect_file!["../../../deploy/infertap.toml"].assert_eq(&sample());
    let (_dir, path) = file(&sample());
    assert_eq!(check_file(&path).expect("valid").config, Config::default());
    for section in SECTIONS {
        assert!(!section.doc.is_empty() && sample().contains(&format!("[{}]", section.name)));
        for key in section.keys {
            assert!(
                key.doc.iter().any(|line| line.len() > 10),
                "{}.{} is documented",
                section.name,
                key.name
            );
        }
    }
}

#[test]
fn every_key_that_is_serialised_is_in_the_list_of_sections() {
    let values = toml::Table::try_from(Config::default()).expect("serialises");
    for (section, keys) in values {
        let info = SECTIONS.iter().find(|s| s.name == section).expect("listed");
        let names: Vec<_> = info.keys.iter().map(|key| key.name).collect();
        // A list of tables is empty by default.
        let tables = keys
            .as_array()
            .map_or_else(|| vec![&keys], |list| list.iter().collect());
        for name in tables
            .iter()
            .flat_map(|table| table.as_table().expect("table").keys())
        {
            assert!(names.contains(&name.as_str()), "{section}.{name}");
        }
    }
}

#[test]
fn the_reference_is_what_the_code_says() {
    expect_file!["../../../docs/configuration.md"].assert_eq(&reference());
}

#[test]
fn the_example_rule_of_the_sample_is_valid() {
    let (_dir, path) = file(&format!("[[discover.rule]]\n{}", RuleConfig::EXAMPLE));
    assert_eq!(
        check_file(&path).expect("valid").config.discover.rule[0].name,
        "my-server"
    );
}

#[test]
fn prices_are_checked_one_by_one() {
    let (_dir, path) = file(&format!("[[price]]\n{}", PriceConfig::EXAMPLE));
    let prices = check_file(&path).expect("valid").config.prices();
    let day = "2026-01-01".parse().expect("a date");
    assert!(prices.price("llama-3", day).is_some());
    let good = "currency = \"USD\"\ninput = 1\noutput = 2.5\n";
    mistakes(
        &format!(
            "[[price]]\nmodel = \"a\"\n{good}\n[[price]]\nmodel = \"b\"\ncurrency = \"usd\"\ninput = 1\noutput = 1\n"
        ),
        &expect![[
            r#"infertap.toml:7: price: currency: "usd" is no currency: write its code, three upper-case letters, as in "USD""#
        ]],
    );
    mistakes(
        &format!("[[price]]\nmodel = \"*\"\n{good}[[price]]\nmodel = \"a\"\n{good}"),
        &expect![[
            r#"infertap.toml:6: price: it can never be a model's: price 1 before it, for "*", is of every model that "a" names; move that one behind it"#
        ]],
    );
    mistakes(
        &format!("[[price]]\nmodel = \"a\"\n{good}valid_from = \"31.1.2026\"\n"),
        &expect![[
            r#"infertap.toml:1: price: valid_from: "31.1.2026" is no date: write it as in "2026-01-31""#
        ]],
    );
    // TOML's own dates are taken too.
    let (_dir, path) = file(&format!(
        "[[price]]\nmodel = \"a\"\n{good}valid_from = 2026-01-31\n"
    ));
    let config = check_file(&path).expect("valid").config;
    assert_eq!(config.price[0].valid_from.as_deref(), Some("2026-01-31"));
    mistakes(
        "[[price]]\nmodel = \"a\"\ninput = \"cheap\"\n",
        &expect![[r#"infertap.toml:1: price: invalid type: string "cheap", expected a number"#]],
    );
    mistakes(
        "[[price]]\nmodels = \"a\"\n",
        &expect!["infertap.toml:2: unknown key models in [price]: did you mean model?"],
    );
}

#[test]
fn scene_rules_are_checked_one_by_one() {
    let (_dir, path) = file(&format!("[[scene]]\n{}", SceneConfig::EXAMPLE));
    assert_eq!(check_file(&path).expect("valid").config.scenes().len(), 1);
    mistakes(
        "[[scene]]\nname = \"a\"\n\n[[scene]]\nfrom = \"colour\"\n\n[[scene]]\nname = \"b\"\nheader = [\"x y=1\"]\n",
        &expect![[r#"
            infertap.toml:4: scene: from = "colour" is nothing that a scene can be named after: write header:NAME, body:PATH, path, host, api_key, system_prompt, client, client_namespace, client_pod, client_workload, client_label:NAME, engine or model
            infertap.toml:7: scene: "x y" is no name of a header: write as in header = ["x-team=search*"]"#]],
    );
    mistakes(
        "[[scene]]\nname = \"a\"\n[[scene]]\nname = \"b\"\nheaders = [\"x=1\"]\n",
        &expect![[r#"infertap.toml:5: unknown key headers in [scene]: did you mean header?"#]],
    );
    mistakes(
        "[[scene]]\nname = \"a\"\n[[scene]]\nname = \"b\"\nheader = [\"x=1\"]\n",
        &expect![[
            r#"infertap.toml:3: scene: it can never match: rule 1 before it matches every request; move that one to the end"#
        ]],
    );
}

#[test]
fn later_layers_override_earlier_ones() {
    let (_dir, path) = file(
        "[server]\nlisten = \"127.0.0.1:1\"\nrecent_requests = 5\n[log]\nlevel = \"warn\"\n[discover]\nports = [1]\n",
    );
    let loaded = load(
        Some(&path),
        env(&[
            ("INFERTAP_SERVER_LISTEN", "127.0.0.1:2"),
            ("INFERTAP_LOG_LEVEL", "debug"),
            ("INFERTAP_DISCOVER_PORTS", "2,3"),
            ("INFERTAP_DISCOVER_COMMS", "1,b"),
            ("INFERTAP_DISCOVER_BUILTIN_RULES", "false"),
            ("INFERTAP_CAPTURE_RING_BYTES", "1MiB"),
            ("INFERTAP_PORT", "tcp://10.0.0.1:9464"),
            ("INFERTAP_SERVICE_HOST", "10.0.0.1"),
            ("PATH", "/bin"),
        ]),
        vec![Override {
            key: "server.listen".to_owned(),
            value: "127.0.0.1:3".into(),
            flag: "--listen".to_owned(),
        }],
    )
    .expect("valid");
    let config = &loaded.config;
    assert_eq!(config.server.listen.port(), 3);
    assert_eq!(config.server.recent_requests, 5);
    assert_eq!(config.log.level, "debug");
    assert_eq!(config.discover.ports, [2, 3]);
    assert_eq!(config.discover.comms, ["1", "b"]);
    assert!(!config.discover.builtin_rules);
    assert_eq!(config.capture.ring_bytes.get(), 1 << 20);
    assert_eq!(
        loaded.origin("server.listen"),
        Origin::Flag("--listen".to_owned())
    );
    assert_eq!(
        loaded.origin("server.recent_requests"),
        Origin::File { path, line: 3 }
    );
    assert_eq!(
        loaded.origin("log.level"),
        Origin::Env("INFERTAP_LOG_LEVEL".to_owned())
    );
    assert_eq!(loaded.origin("log.format"), Origin::Default);
}

#[test]
fn a_single_number_is_a_list_of_one() {
    let loaded = load(None, env(&[("INFERTAP_DISCOVER_PIDS", "7")]), Vec::new()).expect("valid");
    assert_eq!(loaded.config.discover.pids, [7]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_known_one() {
    mistakes(
        "[server]\nlisen = \"127.0.0.1:1\"\nring_bytes = 1\nzzzzzzz = 1\n\n[sever]\nlisten = 1\n[capture.deep]\nx = 1\n[[discover.rule]]\nnam = \"x\"\n",
        &expect![[r#"
            infertap.toml:2: unknown key lisen in [server]: did you mean listen?
            infertap.toml:3: unknown key ring_bytes in [server]: did you mean ring_bytes in [capture]?
            infertap.toml:4: unknown key zzzzzzz in [server]: [server] has listen, recent_requests, history_memory
            infertap.toml:6: unknown section or key sever: did you mean [server]?
            infertap.toml:8: unknown key deep in [capture]: [capture] has socket_probe, arrivals, ring_bytes, max_connections, idle_timeout
            infertap.toml:11: unknown key nam in [discover.rule]: did you mean name?"#]],
    );
    mistakes(
        "recent_requests = 3\n",
        &expect![
            "infertap.toml:1: unknown section or key recent_requests: did you mean recent_requests in [server]?"
        ],
    );
    mistakes(
        "server = 3\n[[log]]\nlevel = \"info\"\n[discover]\nrule = 3\n",
        &expect![[r#"
            infertap.toml:1: server is a section: write it as [server] with its keys on the lines below
            infertap.toml:2: log is a section: write it as [log] with its keys on the lines below
            infertap.toml:5: discover.rule is a list: write each one as [[discover.rule]]"#]],
    );
}

#[test]
fn wrong_types_and_values_are_refused_with_their_line() {
    mistakes(
        "[server]\nlisten = \"localhost\"\nrecent_requests = -1\n[capture]\nring_bytes = \"3MiB\"\nmax_connections = 1\nidle_timeout = 10\n\
         socket_probe = \"kprobe\"\n[log]\nlevel = \"a=b=c\"\n[discover]\nports = [0, 70000]\nscan_interval = \"1ms\"\n",
        &expect![[r#"
            infertap.toml:2: server.listen: write an address and a port, as in "127.0.0.1:9464" or "[::]:9464"
            infertap.toml:3: server.recent_requests: invalid value: integer `-1`, expected a whole number, 0 or more
            infertap.toml:5: capture.ring_bytes: 3MiB is no power of two from 64KiB to 1GiB
            infertap.toml:6: capture.max_connections: 1 is not within 64 to 1000000
            infertap.toml:7: capture.idle_timeout: invalid value: integer `10`, expected a duration such as "500ms" or "10m"
            infertap.toml:8: capture.socket_probe: unknown variant `kprobe`, expected `tracepoint` or `uprobe`
            infertap.toml:10: log.level: "a=b=c" is no level and no filter: error parsing level filter: expected one of "off", "error", "warn", "info", "debug", "trace", or a number 0-5
            infertap.toml:12: discover.ports: invalid value: integer `70000`, expected a whole number from 0 to 65535
            infertap.toml:13: discover.scan_interval: 1ms is not within 100ms to 1h"#]],
    );
    mistakes(
        "[[discover.rule]]\nname = \"a\"\n[[discover.rule]]\ncomm = [\"\"]\n",
        &expect![[r#"
            infertap.toml:1: discover.rule: rule "a": it has no pattern: give comm, exe, cmdline or library
            infertap.toml:3: discover.rule: rule 2: it has no name
            infertap.toml:3: discover.rule: rule 2: a pattern is empty"#]],
    );
    mistakes(
        "[[discover.rule]]\nname = \"a\"\nkind = \"vlm\"\ncomm = [\"x\"]\n",
        &expect![
            "infertap.toml:1: discover.rule: unknown variant `vlm`, expected one of `vllm`, `sglang`, `llama_cpp`, `tgi`, `tensorrt_llm`, `ollama`, `gateway`, `generic`"
        ],
    );
    mistakes(
        "[server\nlisten = 1\n",
        &expect!["infertap.toml:1: unclosed table, expected `]`"],
    );
    mistakes(
        "[log]\nlevel = \"info\"\nlevel = \"warn\"\n",
        &expect!["infertap.toml:3: duplicate key"],
    );
}

#[test]
fn a_file_that_is_no_text_or_not_there_is_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("x.toml");
    std::fs::write(&path, b"[server]\n# \xff\n").expect("write");
    let problems = check_file(&path).expect_err("refused");
    assert!(
        problems.to_string().contains("x.toml:2: the file is not UTF-8"),
        "{problems}"
    );
    let problems = check_file(Path::new("/nonexistent/x.toml")).expect_err("refused");
    assert!(problems.to_string().contains("cannot be read"), "{problems}");
    let problems = check_file(dir.path()).expect_err("refused");
    assert!(problems.to_string().contains("cannot be read"), "{problems}");
}

#[test]
fn mistakes_in_the_environment_and_in_flags_are_named() {
    let problems = load(
        None,
        env(&[
            ("INFERTAP_SERVER_LISTN", "x"),
            ("INFERTAP_SERVER_RECENT_REQUESTS", "many"),
            ("INFERTAP_CAPTURE_RING_BYTES", "7"),
        ]),
        vec![
            Override {
                key: "capture.ringbytes".to_owned(),
                value: 1.into(),
                flag: "--set".to_owned(),
            },
            Override {
                key: "capture.max_connections".to_owned(),
                value: 1.into(),
                flag: "--set".to_owned(),
            },
        ],
    )
    .expect_err("refused");
    expect![[r#"
        the configuration has 5 mistakes
          environment variable INFERTAP_SERVER_LISTN: no key has this name: did you mean INFERTAP_SERVER_LISTEN?
          environment variable INFERTAP_SERVER_RECENT_REQUESTS: server.recent_requests: invalid type: string "many", expected a whole number, 0 or more
          environment variable INFERTAP_CAPTURE_RING_BYTES: capture.ring_bytes: 7B is no power of two from 64KiB to 1GiB
          flag --set: unknown key ringbytes in [capture]: did you mean ring_bytes?
          flag --set: capture.max_connections: 1 is not within 64 to 1000000"#]].assert_eq(&problems.to_string());
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    let (_dir, path) = file(
        "[capture]\nsocket_probe = \"uprobe\"\n[[discover.rule]]\nname = \"a\"\nkind = \"vllm\"\ncomm = [\"x y\"]\nmodel = \"m\"\n[[discover.rule]]\nname = \"b\"\nexe = [\"/x/*\"]\n",
    );
    let loaded = load(Some(&path), NO_ENV, Vec::new()).expect("valid");
    let printed = effective(&loaded);
    let (_dir, again) = file(&printed);
    assert_eq!(check_file(&again).expect("valid").config, loaded.config);
    assert!(
        printed.contains(&format!("# ({}:2)\nsocket_probe = \"uprobe\"", path.display())),
        "{printed}"
    );
    assert!(printed.contains("# (default)\nlisten = "), "{printed}");
}

#[test]
fn values_of_headers_are_not_printed_whatever_their_names() {
    for section in ["otlp", "loki", "elasticsearch"] {
        let text = format!(
            "[{section}]\nheaders = {{ \"X-Scope-OrgID\" = \"hunter2\", \"x-team\" = \"hunter3\" }}\nheader_files = {{ \"x-a\" = \"/etc/a\" }}\n"
        );
        let (_dir, path) = file(&text);
        let loaded = load(Some(&path), NO_ENV, Vec::new()).expect("valid");
        let printed = effective(&loaded);
        assert!(!printed.contains("hunter"), "{section}: {printed}");
        assert!(
            printed.contains("headers = { X-Scope-OrgID = \"***\", x-team = \"***\" }"),
            "{section}: {printed}"
        );
        assert!(
            printed.contains("header_files = { x-a = \"/etc/a\" }"),
            "{section}"
        );
        for wrong in ["\"hunter2\"", "[\"hunter2\"]", "{ x-a = { y = \"hunter2\" } }"] {
            let (_dir, path) = file(&format!("[{section}]\nheaders = {wrong}\n"));
            let problems = load(Some(&path), NO_ENV, Vec::new())
                .expect_err("wrong")
                .to_string();
            assert!(problems.contains(&format!("{section}.headers")), "{problems}");
            assert!(!problems.contains("hunter"), "{problems}");
        }
        for wrong in [
            "header_files = \"hunter2\"",
            "header_files = [\"hunter2\"]",
            "header_files = { x-a = \"hunter2\" }",
            "header_files = { x-a = { y = \"hunter2\" } }",
            "bearer_token_file = \"hunter2\"",
            "bearer_token_file = 4711000",
            "basic_auth_file = \"ann:hunter2\"",
        ] {
            let (_dir, path) = file(&format!("[{section}]\n{wrong}\n"));
            let problems = load(Some(&path), NO_ENV, Vec::new())
                .expect_err("wrong")
                .to_string();
            let key = wrong.split(' ').next().expect("a key");
            assert!(problems.contains(&format!("{section}.{key}")), "{problems}");
            assert!(
                !problems.contains("hunter") && !problems.contains("4711"),
                "{problems}"
            );
        }
    }
}

#[test]
fn the_core_gets_its_bounds() {
    let mut config = Config::default();
    let pipeline = config.pipeline();
    assert_eq!(
        (
            pipeline.max_connections,
            pipeline.idle_timeout_ns,
            pipeline.engine_hooks
        ),
        (16_384, 600_000_000_000, true)
    );
    assert!(pipeline.estimates);
    config.engine.hooks = false;
    config.engine.estimates = false;
    let pipeline = config.pipeline();
    assert!(!pipeline.engine_hooks && !pipeline.estimates);
}
