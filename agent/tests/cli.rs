//! The program as its users start it: arguments in, output and exit code out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn infertap(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_infertap"))
        .args(args)
        .env_remove("INFERTAP_CONFIG")
        .output()
        .expect("infertap starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

#[test]
fn version_and_help_are_on_standard_output() {
    let version = infertap(&["--version"]);
    assert!(version.status.success());
    assert_eq!(
        stdout(&version).trim(),
        format!("infertap {}", env!("CARGO_PKG_VERSION"))
    );
    let help = infertap(&["help"]);
    assert!(help.status.success());
    for command in [
        "run",
        "engines",
        "prefix",
        "tokens",
        "doctor",
        "budget",
        "cost",
        "record",
        "replay",
        "config",
        "completions",
    ] {
        assert!(
            stdout(&help)
                .lines()
                .any(|line| line.trim_start().starts_with(command)),
            "{command}"
        );
    }
}

#[test]
fn a_wrong_argument_is_refused_with_2() {
    let output = infertap(&["run", "--prot", "8000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--port"), "{}", stderr(&output));
}

#[test]
fn the_sample_file_is_valid_and_a_wrong_one_is_refused_with_1() {
    let sample = repository("deploy/infertap.toml");
    let output = infertap(&["config", "check", sample.to_str().expect("text")]);
    assert!(output.status.success(), "{}", stderr(&output));
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("wrong.toml");
    std::fs::write(&file, "[server]\n\nlisten = \"127.0.0.1:1\"\nrecent = 3\n").expect("write");
    let output = infertap(&["config", "check", file.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(
        text.contains("wrong.toml:4: unknown key recent in [server]: did you mean recent_requests?"),
        "{text}"
    );
}

#[test]
fn the_effective_configuration_is_printed_with_its_origins() {
    let output = Command::new(env!("CARGO_BIN_EXE_infertap"))
        .args([
            "config",
            "print",
            "--port",
            "8000",
            "--set",
            "capture.ring_bytes=1MiB",
        ])
        .env("INFERTAP_LOG_LEVEL", "debug")
        .env_remove("INFERTAP_CONFIG")
        .output()
        .expect("infertap starts");
    let text = stdout(&output);
    for line in [
        "# (flag --port)\nports = [8000]\n",
        "# (flag --set)\nring_bytes = \"1MiB\"\n",
        "# (environment variable INFERTAP_LOG_LEVEL)\nlevel = \"debug\"\n",
        "# (default)\nformat = \"text\"\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let file = dir.path().join("printed.toml");
    std::fs::write(&file, &output.stdout).expect("write");
    assert!(
        infertap(&["config", "check", file.to_str().expect("text")])
            .status
            .success()
    );
}

#[test]
fn engines_are_listed_as_json() {
    let output = infertap(&[
        "engines",
        "--json",
        "--set",
        "discover.builtin_rules=false",
        "--pid",
        "4294967295",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["engines"], serde_json::json!([]));
    assert!(
        json["problems"][0]
            .as_str()
            .expect("text")
            .contains("there is no such process")
    );
}

#[test]
fn the_doctors_exit_code_is_its_answer() {
    let output = infertap(&["doctor", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let able = json["able"].as_bool().expect("boolean");
    assert_eq!(output.status.code(), Some(i32::from(!able)));
    for check in json["checks"].as_array().expect("list") {
        assert!(
            check["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{check}"
        );
    }
    let text = infertap(&["doctor"]);
    assert!(stdout(&text).contains("kernel"), "{}", stdout(&text));
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = infertap(&["completions", shell]);
        assert!(
            output.status.success() && stdout(&output).contains("doctor"),
            "{shell}"
        );
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_infertap");
    let script = format!("set -o pipefail; '{program}' completions bash | head -c 1 >/dev/null");
    let status = Command::new("bash")
        .args(["-c", &script])
        .status()
        .expect("bash starts");
    assert!(status.success());
}

#[test]
fn a_missing_recording_is_said() {
    let output = infertap(&["replay", "/nonexistent/recording"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("/nonexistent/recording"),
        "{}",
        stderr(&output)
    );
}
