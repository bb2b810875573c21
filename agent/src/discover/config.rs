//! The `[discover]` section.
//!
//! Owns: its keys, defaults and ranges. Refuses: what rules match (`rules`).

use crate::config::Span;
use crate::config_section;
use infertap_core::EngineKind;

config_section! {
    /// Which processes are engines. The well-known servers (vLLM, SGLang, llama.cpp, Ollama, text-generation-inference,
    /// TensorRT-LLM, Triton) are found without any of this.
    pub struct DiscoverConfig {
        /// Time between two looks at the process table; 100ms to 1h.
        pub scan_interval: Span = Span::seconds(1),
        /// Find the well-known servers. With false, only what is named here (and on the command line) is watched.
        pub builtin_rules: bool = true,
        /// Find gateways too (nginx, Envoy, LiteLLM, routers of SGLang and vLLM): what they serve is no request of its own,
        /// but tells what part of a request's time is theirs. A rule with kind = "gateway" adds others, also with false.
        pub gateways: bool = true,
        /// Process ids to watch in any case.
        pub pids: Vec<u32> = Vec::new(),
        /// TCP ports whose listeners to watch in any case.
        pub ports: Vec<u16> = Vec::new(),
        /// Process names (the 15 bytes that `ps -o comm` shows, with * and ?) to watch in any case.
        pub comms: Vec<String> = Vec::new(),
        /// More rules, tried before the built-in ones.
        pub rule: Vec<RuleConfig> = Vec::new(),
    }
}

config_section! {
    /// A rule that makes a process an engine. Every kind of pattern that is given must match; of the patterns of one kind,
    /// any. In patterns, * stands for any characters and ? for one. The first rule that matches a process decides.
    pub struct RuleConfig {
        /// Name of the rule, shown by `infertap engines`.
        pub name: String = String::new(),
        /// What the server is: "vllm", "sglang", "llama_cpp", "tgi", "tensorrt_llm", "ollama" or "generic"; "gateway"
        /// where it only passes requests on to others.
        pub kind: EngineKind = EngineKind::Generic,
        /// Process names: the 15 bytes that `ps -o comm` shows.
        pub comm: Vec<String> = Vec::new(),
        /// Executables: a file name, or a whole path when the pattern has a slash.
        pub exe: Vec<String> = Vec::new(),
        /// Command lines: words that must be the first arguments, after an interpreter and its options if there is one, as
        /// in "my_server serve" or "-m my_server*". A word without a slash is compared with the last part of a path.
        pub cmdline: Vec<String> = Vec::new(),
        /// File names of libraries that the process has mapped.
        pub library: Vec<String> = Vec::new(),
        /// The process must listen on a TCP port.
        pub listening: bool = false,
        /// The process belongs to the engine of a parent of the same kind (a worker), and takes no requests from clients.
        pub member: bool = false,
        /// Served model name, where the command line does not tell.
        pub model: Option<String> = None,
    }
}

impl RuleConfig {
    /// What the sample file shows.
    pub const EXAMPLE: &'static str = "name = \"my-server\"\nkind = \"generic\"\ncmdline = [\"-m my_server*\"]\nlistening = true\nmodel = \"my-model\"\n";
}

impl DiscoverConfig {
    /// What is out of range, as (key, reason).
    pub fn invalid(&self) -> Vec<(String, String)> {
        let mut out = Vec::new();
        let interval = self.scan_interval;
        if !(Span::millis(100)..=Span::seconds(3600)).contains(&interval) {
            out.push((
                "discover.scan_interval".to_owned(),
                format!("{interval} is not within 100ms to 1h"),
            ));
        }
        if self.pids.contains(&0) {
            out.push(("discover.pids".to_owned(), "0 is no process".to_owned()));
        }
        if self.ports.contains(&0) {
            out.push(("discover.ports".to_owned(), "0 is no port".to_owned()));
        }
        for (number, rule) in self.rule.iter().enumerate() {
            let mut fail = |reason: &str| {
                let name = if rule.name.is_empty() {
                    format!("rule {}", number + 1)
                } else {
                    format!("rule {:?}", rule.name)
                };
                out.push((format!("discover.rule[{number}]"), format!("{name}: {reason}")));
            };
            let patterns = [&rule.comm, &rule.exe, &rule.cmdline, &rule.library];
            if rule.name.is_empty() {
                fail("it has no name");
            }
            if patterns.iter().all(|list| list.is_empty()) {
                fail("it has no pattern: give comm, exe, cmdline or library");
            }
            if patterns
                .iter()
                .any(|list| list.iter().any(|pattern| pattern.trim().is_empty()))
            {
                fail("a pattern is empty");
            }
        }
        out
    }
}
