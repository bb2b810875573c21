//! Tests of `rules`: command lines as they are in the field, and those that only look like engines.

use super::*;
use proptest::prelude::*;

#[derive(Default)]
struct Process {
    comm: String,
    exe: Option<String>,
    argv: Vec<String>,
    listening: bool,
    libraries: Vec<String>,
    asked_libraries: bool,
}

impl Evidence for Process {
    fn comm(&self) -> &str {
        &self.comm
    }
    fn exe(&mut self) -> Option<&str> {
        self.exe.as_deref()
    }
    fn argv(&mut self) -> &[String] {
        &self.argv
    }
    fn listening(&mut self) -> bool {
        self.listening
    }
    fn libraries(&mut self) -> &[String] {
        self.asked_libraries = true;
        &self.libraries
    }
}

fn process(comm: &str, exe: &str, cmdline: &str) -> Process {
    Process {
        comm: comm.to_owned(),
        exe: Some(exe.to_owned()),
        argv: cmdline.split(' ').map(str::to_owned).collect(),
        ..Process::default()
    }
}

fn rule_of(mut process: Process) -> Option<String> {
    first_match(&rules(&[], true, true), &mut process).map(|rule| rule.name.clone())
}

#[test]
fn gateways_are_known_while_they_listen_and_are_wanted() {
    let python = "/usr/bin/python3.12";
    for (exe, cmdline, expected) in [
        (
            "/usr/sbin/nginx",
            "nginx: master process /usr/sbin/nginx",
            "nginx",
        ),
        ("/usr/sbin/nginx", "nginx: worker process", "nginx"),
        ("/usr/local/bin/envoy", "envoy -c /etc/envoy.yaml", "envoy"),
        (
            python,
            "/usr/bin/python3 /usr/local/bin/litellm --config c.yaml",
            "litellm",
        ),
        (
            python,
            "python -m sglang_router.launch_router --worker-urls u",
            "sglang-router",
        ),
        ("/usr/bin/sglang-router", "sglang-router launch", "sglang-router"),
        (
            python,
            "/opt/venv/bin/python /opt/venv/bin/vllm-router --port 8001",
            "vllm-router",
        ),
    ] {
        let server = |listening| Process {
            listening,
            ..process("x", exe, cmdline)
        };
        assert_eq!(rule_of(server(true)).as_deref(), Some(expected), "{cmdline}");
        assert_eq!(rule_of(server(false)), None, "{cmdline} that serves nobody");
        for (builtin, gateways) in [(true, false), (false, true)] {
            let all = rules(&[], builtin, gateways);
            assert!(first_match(&all, &mut server(true)).is_none(), "{cmdline}");
        }
    }
}

#[test]
fn servers_of_the_field_are_known() {
    let python = "/usr/bin/python3.12";
    for (comm, exe, cmdline, expected) in [
        (
            "vllm",
            python,
            "/opt/venv/bin/python /opt/venv/bin/vllm serve m --port 1",
            "vllm-serve",
        ),
        (
            "python3",
            python,
            "python3 -u -X dev -m vllm.entrypoints.openai.api_server --model m",
            "vllm-serve",
        ),
        (
            "python3",
            python,
            "python3 /src/vllm/entrypoints/openai/api_server.py",
            "vllm-serve",
        ),
        ("VLLM::EngineCor", python, "VLLM::EngineCore", "vllm-worker"),
        ("VLLM::Worker_TP", python, "VLLM::Worker_TP0", "vllm-worker"),
        ("VLLM::APIServer", python, "VLLM::APIServer_1", "vllm-api-title"),
        (
            "python",
            python,
            "python -m sglang.launch_server --model-path m",
            "sglang-server",
        ),
        (
            "sglang",
            python,
            "/opt/venv/bin/python3 /opt/venv/bin/sglang serve --model-path m",
            "sglang-server",
        ),
        (
            "python3",
            python,
            "python3 -m sglang.cli.main serve --model-path m",
            "sglang-server",
        ),
        (
            "sglang::schedul",
            python,
            "sglang::scheduler_TP0",
            "sglang-worker",
        ),
        (
            "sglang::schedul",
            python,
            "sglang::scheduler_DP1_TP0",
            "sglang-worker",
        ),
        ("sglang::detoken", python, "sglang::detokenizer", "sglang-worker"),
        ("sglang::server", python, "sglang::server", "sglang-server-title"),
        (
            "sglang::detoken",
            python,
            "sglang::detokenizer_router",
            "sglang-worker",
        ),
        (
            "sglang::tokeniz",
            python,
            "sglang::tokenizer_worker:4711",
            "sglang-worker",
        ),
        (
            "sglang::data_pa",
            python,
            "sglang::data_parallel_controller",
            "sglang-worker",
        ),
        (
            "text-generation",
            "/usr/local/bin/text-generation-launcher",
            "text-generation-launcher --model-id m",
            "tgi-server",
        ),
        (
            "text-generation",
            "/usr/local/bin/text-generation-router",
            "text-generation-router --port 80",
            "tgi-server",
        ),
        (
            "text-generation",
            python,
            "/opt/conda/bin/python3 /opt/conda/bin/text-generation-server serve m",
            "tgi-shard",
        ),
        (
            "tritonserver",
            "/opt/tritonserver/bin/tritonserver",
            "tritonserver --model-repository=/m",
            "tritonserver",
        ),
        (
            "trtllm-serve",
            python,
            "/usr/bin/python3 /usr/local/bin/trtllm-serve m --port 8000",
            "trtllm-serve",
        ),
        (
            "ollama",
            "/usr/local/bin/ollama",
            "/usr/local/bin/ollama serve",
            "ollama-serve",
        ),
        (
            "ollama",
            "/usr/local/bin/ollama",
            "/usr/local/bin/ollama runner --model b --port 4",
            "ollama-runner",
        ),
        (
            "llama-server",
            "/app/llama-server",
            "/app/llama-server -m x.gguf",
            "llama-server",
        ),
        (
            "ld-linux",
            "/lib/ld-linux.so.2",
            "./llama-server-cuda -m x.gguf",
            "llama-server-title",
        ),
        (
            "python",
            python,
            "python3 -m llama_cpp.server --model x.gguf",
            "llama-server-title",
        ),
    ] {
        assert_eq!(
            rule_of(process(comm, exe, cmdline)).as_deref(),
            Some(expected),
            "{cmdline}"
        );
    }
}

#[test]
fn those_that_only_name_an_engine_are_none() {
    let shell = Process {
        argv: ["sh", "-c", "vllm serve m"].map(str::to_owned).to_vec(),
        ..Process::default()
    };
    assert_eq!(rule_of(shell), None);
    for (comm, exe, cmdline) in [
        ("grep", "/usr/bin/grep", "grep -r vllm serve"),
        ("tini", "/usr/bin/tini", "tini -- vllm serve m"),
        (
            "docker",
            "/usr/bin/docker",
            "docker run vllm/vllm-openai vllm serve m",
        ),
        (
            "vim",
            "/usr/bin/vim",
            "vim /src/vllm/entrypoints/openai/api_server.py",
        ),
        (
            "vllm",
            "/usr/bin/python3",
            "python3 /opt/venv/bin/vllm bench serve",
        ),
        ("vllm", "/usr/bin/python3", "python3 /opt/venv/bin/vllm"),
        ("python3", "/usr/bin/python3", "python3 -c vllm serve"),
        ("ollama", "/usr/local/bin/ollama", "ollama run llama3"),
        ("llama-cli", "/app/llama-cli", "/app/llama-cli -m x.gguf"),
        ("kthread", "", ""),
    ] {
        assert_eq!(rule_of(process(comm, exe, cmdline)), None, "{cmdline}");
    }
}

#[test]
fn a_library_makes_an_engine_only_of_who_listens() {
    let with = |library: &str, listening| Process {
        libraries: vec!["/lib/libc.so.6".to_owned(), library.to_owned()],
        listening,
        ..process("python", "/usr/bin/python3", "python serve.py")
    };
    let site = "/v/lib/python3.11/site-packages";
    for library in [
        "xllamacpp/xllamacpp.abi3.so",
        "llama_cpp/lib/libllama.so",
        "x/libllama.so.0",
    ] {
        let path = format!("{site}/{library}");
        assert_eq!(
            rule_of(with(&path, true)).as_deref(),
            Some("libllama"),
            "{library}"
        );
        assert_eq!(rule_of(with(&path, false)), None, "{library}");
    }
    assert_eq!(rule_of(with("/x/libllamafoo.so", true)), None);
    let mut idle = with("/x/libllama.so", false);
    assert!(
        first_match(&rules(&[], true, true), &mut idle).is_none() && !idle.asked_libraries,
        "maps are not read for who does not listen"
    );
}

#[test]
fn configured_rules_come_first_and_all_their_patterns_must_match() {
    let own = RuleConfig {
        name: "own".to_owned(),
        kind: Generic,
        comm: vec!["vllm".to_owned(), "other".to_owned()],
        exe: vec!["/opt/*/python*".to_owned()],
        ..RuleConfig::default()
    };
    let all = rules(std::slice::from_ref(&own), true, true);
    let name = |mut process: Process| first_match(&all, &mut process).map(|rule| rule.name.as_str());
    assert_eq!(
        name(process("vllm", "/opt/v/python3", "vllm serve m")),
        Some("own")
    );
    assert_eq!(
        name(process("vllm", "/usr/python3", "vllm serve m")),
        Some("vllm-serve")
    );
    assert!(
        first_match(
            &rules(&[own], false, true),
            &mut process("x", "/y", "vllm serve m")
        )
        .is_none()
    );
}

#[test]
fn names_match_by_what_the_kernel_keeps_of_them() {
    assert!(comm_matches("VLLM::EngineCore", "VLLM::EngineCor"));
    assert!(!comm_matches("VLLM::EngineCore", "VLLM::EngineC"));
    assert!(!comm_matches("python", "python3"));
    assert!(comm_matches("python*", "python3"));
}

#[test]
fn patterns() {
    for (pattern, text, expected) in [
        ("", "", true),
        ("*", "", true),
        ("", "a", false),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "a-b-b-", false),
        ("?", "", false),
        ("a?c", "abc", true),
        ("*.so", "x.so.1", false),
        ("*.so*", "x.so.1", true),
        ("**a", "bba", true),
    ] {
        assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
    }
}

proptest! {
    #[test]
    fn a_text_matches_itself_and_any_star_in_it(text in "[a-z]{0,20}", at in 0usize..21, len in 0usize..21) {
        prop_assert!(glob(&text, &text));
        let from = at.min(text.len());
        let to = (from + len).min(text.len());
        let pattern = format!("{}*{}", &text[..from], &text[to..]);
        prop_assert!(glob(&pattern, &text));
        let longer = format!("{text}!");
        prop_assert!(!glob(&text, &longer));
    }

    #[test]
    fn hostile_input_is_only_no_match(pattern in "\\PC{0,30}", argv in proptest::collection::vec("\\PC{0,30}", 0..6)) {
        let _ = argv_matches(&pattern, &argv);
        let _ = comm_matches(&pattern, argv.first().map_or("", String::as_str));
    }
}
