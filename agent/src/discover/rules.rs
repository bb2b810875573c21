//! Which process is an engine: rules as data, and their matching.
//!
//! Owns: the built-in rules, patterns, and the order of deciding. Refuses: reading procfs (its evidence is given) and
//! grouping processes into engines.

use super::config::RuleConfig;
use infertap_core::EngineKind::{self, Gateway, Generic, LlamaCpp, Ollama, Sglang, TensorrtLlm, Tgi, Vllm};
use infertap_core::scene::glob;

/// The kernel keeps this much of a process name.
const COMM_LEN: usize = 15;

/// A built-in rule: [`RuleConfig`] says what the fields mean.
struct Builtin {
    name: &'static str,
    kind: EngineKind,
    comm: &'static [&'static str],
    exe: &'static [&'static str],
    cmdline: &'static [&'static str],
    library: &'static [&'static str],
    listening: bool,
    member: bool,
}

const NONE: Builtin = Builtin {
    name: "",
    kind: Generic,
    comm: &[],
    exe: &[],
    cmdline: &[],
    library: &[],
    listening: false,
    member: false,
};

/// The built-in rules, in the order in which they are tried. Titles as in `VLLM::Worker` are set by the servers
/// themselves (`setproctitle`), and replace the command line.
const BUILTIN: &[Builtin] = &[
    Builtin {
        name: "vllm-api-title",
        kind: Vllm,
        comm: &["VLLM::API*", "VLLM::Api*"],
        ..NONE
    },
    Builtin {
        name: "vllm-worker",
        kind: Vllm,
        comm: &["VLLM::*"],
        member: true,
        ..NONE
    },
    Builtin {
        name: "vllm-serve",
        kind: Vllm,
        cmdline: &[
            "vllm serve",
            "-m vllm.entrypoints.cli.main serve",
            "-m vllm.entrypoints.*api_server",
            "*/vllm/entrypoints/*api_server.py",
        ],
        ..NONE
    },
    // A server that a launcher of several forked, as that of the router does.
    Builtin {
        name: "sglang-server-title",
        kind: Sglang,
        comm: &["sglang::server"],
        ..NONE
    },
    Builtin {
        name: "sglang-worker",
        kind: Sglang,
        comm: &["sglang::*"],
        member: true,
        ..NONE
    },
    Builtin {
        name: "sglang-server",
        kind: Sglang,
        cmdline: &[
            "-m sglang.launch_server",
            "*/sglang/launch_server.py",
            "sglang serve",
            "-m sglang.cli.main serve",
        ],
        ..NONE
    },
    Builtin {
        name: "tgi-shard",
        kind: Tgi,
        cmdline: &["text-generation-server serve"],
        member: true,
        ..NONE
    },
    Builtin {
        name: "tgi-server",
        kind: Tgi,
        cmdline: &["text-generation-launcher", "text-generation-router*"],
        ..NONE
    },
    Builtin {
        name: "trtllm-worker",
        kind: TensorrtLlm,
        cmdline: &["trtllmExecutorWorker", "-m mpi4py.futures.server"],
        library: &["libtensorrt_llm*.so*"],
        member: true,
        ..NONE
    },
    Builtin {
        name: "trtllm-serve",
        kind: TensorrtLlm,
        cmdline: &["trtllm-serve", "-m tensorrt_llm.commands.serve"],
        ..NONE
    },
    Builtin {
        name: "tritonserver",
        kind: TensorrtLlm,
        exe: &["tritonserver"],
        ..NONE
    },
    Builtin {
        name: "ollama-runner",
        kind: Ollama,
        cmdline: &["ollama runner", "ollama_llama_server"],
        member: true,
        ..NONE
    },
    Builtin {
        name: "ollama-serve",
        kind: Ollama,
        cmdline: &["ollama serve", "ollama start"],
        ..NONE
    },
    Builtin {
        name: "llama-server",
        kind: LlamaCpp,
        exe: &["llama-server*"],
        ..NONE
    },
    Builtin {
        name: "llama-server-title",
        kind: LlamaCpp,
        cmdline: &["llama-server*", "-m llama_cpp.server"],
        ..NONE
    },
    Builtin {
        name: "generic-server",
        kind: Generic,
        cmdline: &[
            "lmdeploy serve",
            "-m lmdeploy serve",
            "mlc_llm serve",
            "-m mlc_llm serve",
            "mistralrs-server",
            "mistralrs serve",
            "aphrodite run",
            "-m aphrodite.endpoints.*api_server",
            "koboldcpp*",
            "transformers serve",
            "text-embeddings-router",
            "-m fastchat.serve.*",
        ],
        listening: true,
        ..NONE
    },
    Builtin {
        name: "nginx",
        kind: Gateway,
        exe: &["nginx", "openresty", "angie"],
        listening: true,
        ..NONE
    },
    Builtin {
        name: "envoy",
        kind: Gateway,
        exe: &["envoy"],
        listening: true,
        ..NONE
    },
    Builtin {
        name: "litellm",
        kind: Gateway,
        cmdline: &["litellm", "-m litellm", "-m litellm.proxy.proxy_cli"],
        listening: true,
        ..NONE
    },
    Builtin {
        name: "sglang-router",
        kind: Gateway,
        cmdline: &[
            "sglang-router",
            "sglang_router",
            "smg",
            "-m sglang_router.launch_router",
            "-m sglang_router.launch_server",
        ],
        listening: true,
        ..NONE
    },
    Builtin {
        name: "vllm-router",
        kind: Gateway,
        cmdline: &[
            "vllm-router",
            "-m vllm_router.app",
            "-m vllm_router.launch_router",
        ],
        listening: true,
        ..NONE
    },
    // Last, since several of the above carry a copy of libllama: whatever maps it and listens is a llama.cpp server.
    Builtin {
        name: "libllama",
        kind: LlamaCpp,
        library: &[
            "libllama.so*",
            "libllama-*.so*",
            "xllamacpp*.so",
            "_pyxllamacpp*.so",
        ],
        listening: true,
        ..NONE
    },
];

impl Builtin {
    fn rule(&self) -> RuleConfig {
        let list = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        RuleConfig {
            name: self.name.to_owned(),
            kind: self.kind,
            comm: list(self.comm),
            exe: list(self.exe),
            cmdline: list(self.cmdline),
            library: list(self.library),
            listening: self.listening,
            member: self.member,
            model: None,
        }
    }
}

/// The rules in force: the operator's, then the built-in ones.
pub(super) fn rules(configured: &[RuleConfig], builtin: bool, gateways: bool) -> Vec<RuleConfig> {
    let wanted = |rule: &&Builtin| {
        if rule.kind == Gateway {
            builtin && gateways
        } else {
            builtin
        }
    };
    let builtin = BUILTIN.iter().filter(wanted).map(Builtin::rule);
    configured.iter().cloned().chain(builtin).collect()
}

/// What is known of a process. The last two are asked only when a rule's other patterns match, since they cost more.
pub(super) trait Evidence {
    /// The kernel's 15 bytes of name.
    fn comm(&self) -> &str;
    /// Path of the executable.
    fn exe(&mut self) -> Option<&str>;
    /// Arguments.
    fn argv(&mut self) -> &[String];
    /// Whether it listens on a TCP port.
    fn listening(&mut self) -> bool;
    /// Paths of the libraries that it has mapped.
    fn libraries(&mut self) -> &[String];
}

/// The first of `rules` that matches.
pub(super) fn first_match<'r>(
    rules: &'r [RuleConfig],
    evidence: &mut dyn Evidence,
) -> Option<&'r RuleConfig> {
    rules.iter().find(|rule| {
        let any = |patterns: &[String], matches: &mut dyn FnMut(&str) -> bool| {
            patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern))
        };
        any(&rule.comm, &mut |pattern| comm_matches(pattern, evidence.comm()))
            && any(&rule.exe, &mut |pattern| {
                evidence.exe().is_some_and(|exe| path_matches(pattern, exe))
            })
            && any(&rule.cmdline, &mut |pattern| {
                argv_matches(pattern, evidence.argv())
            })
            && (!rule.listening || evidence.listening())
            && any(&rule.library, &mut |pattern| {
                evidence
                    .libraries()
                    .iter()
                    .any(|path| path_matches(pattern, path))
            })
    })
}

/// A name longer than the kernel keeps matches by what it keeps.
pub(super) fn comm_matches(pattern: &str, comm: &str) -> bool {
    if glob(pattern, comm) {
        return true;
    }
    let literal = !pattern.contains(['*', '?']);
    literal && pattern.len() > COMM_LEN && comm.len() == COMM_LEN && pattern.starts_with(comm)
}

/// A pattern without a slash is for the last part of a path.
fn path_matches(pattern: &str, path: &str) -> bool {
    glob(pattern, path) || (!pattern.contains('/') && glob(pattern, path.rsplit('/').next().unwrap_or(path)))
}

/// Whether the words of `pattern` are the program and its first arguments. The program is the first argument, or the
/// first one after an interpreter and its options. So `sh -c "vllm serve"`, `tini -- vllm serve` and `grep vllm serve`
/// do not match: what they start does.
fn argv_matches(pattern: &str, argv: &[String]) -> bool {
    let starts_at = |start: usize| {
        let mut words = 0;
        let matched = pattern.split_whitespace().all(|word| {
            words += 1;
            argv.get(start + words - 1)
                .is_some_and(|arg| path_matches(word, arg))
        });
        words > 0 && matched
    };
    starts_at(0) || program_index(argv).is_some_and(starts_at)
}

/// Where the program's name is when the first argument is an interpreter: `-m` counts as the name's beginning.
pub(super) fn program_index(argv: &[String]) -> Option<usize> {
    let interpreter = argv.first()?.rsplit('/').next()?;
    if !["python*", "pypy*"]
        .iter()
        .any(|pattern| glob(pattern, interpreter))
    {
        return None;
    }
    let mut index = 1;
    loop {
        match argv.get(index)?.as_str() {
            "-c" => return None,
            "-X" | "-W" => index += 2,
            option if option.starts_with('-') && option != "-m" => index += 1,
            _ => return Some(index),
        }
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
