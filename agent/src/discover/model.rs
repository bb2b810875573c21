//! Served model name and port, as the command line and the environment tell.
//!
//! Owns: the flags of each engine. Refuses: what the traffic tells (the core prefers that).

use infertap_core::EngineKind;

/// Longest model name that is believed.
const NAME_LIMIT: usize = 512;

/// Where one kind of engine tells its model and port.
struct Flags {
    /// Flags, best first; dashes and underscores are the same.
    model: &'static [&'static str],
    /// Environment variables, after the flags.
    env: &'static [&'static str],
    /// The word whose following argument is the model.
    after: &'static [&'static str],
    /// Flags with the port.
    port: &'static [&'static str],
    /// Port when nothing else is said.
    default_port: Option<u16>,
}

fn flags(kind: EngineKind) -> Flags {
    match kind {
        EngineKind::Vllm => Flags {
            model: &["--served-model-name", "--model"],
            env: &[],
            after: &["serve"],
            port: &["--port"],
            default_port: Some(8000),
        },
        EngineKind::Sglang => Flags {
            model: &["--served-model-name", "--model-path", "--model"],
            env: &[],
            after: &[],
            port: &["--port"],
            default_port: Some(30_000),
        },
        EngineKind::LlamaCpp => Flags {
            model: &[
                "--alias",
                "-a",
                "--model-alias",
                "--model",
                "-m",
                "--hf-repo",
                "-hf",
                "-hfr",
            ],
            env: &["LLAMA_ARG_ALIAS", "LLAMA_ARG_MODEL", "LLAMA_ARG_HF_REPO"],
            after: &[],
            port: &["--port"],
            default_port: Some(8080),
        },
        EngineKind::Tgi => Flags {
            model: &["--served-model-name", "--model-id", "--model-name"],
            env: &["MODEL_ID"],
            after: &[],
            port: &["--port", "-p"],
            default_port: None,
        },
        EngineKind::TensorrtLlm => Flags {
            model: &["--served-model-name", "--model"],
            env: &[],
            after: &["trtllm-serve", "serve"],
            port: &["--port", "--http-port"],
            default_port: Some(8000),
        },
        EngineKind::Ollama => Flags {
            model: &[],
            env: &[],
            after: &[],
            port: &[],
            default_port: Some(11_434),
        },
        EngineKind::Gateway => Flags {
            model: &[],
            env: &[],
            after: &[],
            port: &["--port", "-p"],
            default_port: None,
        },
        EngineKind::Generic => Flags {
            model: &[
                "--served-model-name",
                "--model-name",
                "--model-id",
                "--model-path",
                "--model",
            ],
            env: &[],
            after: &[],
            port: &["--port"],
            default_port: None,
        },
    }
}

/// The served model name that the server was started with.
pub(super) fn model_name(
    kind: EngineKind,
    argv: &[String],
    env: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let flags = flags(kind);
    let after = || {
        // `trtllm-serve serve M`: the last of the words that is there counts.
        let word = flags
            .after
            .iter()
            .rev()
            .find_map(|word| argv.iter().position(|arg| arg.rsplit('/').next() == Some(word)))?;
        argv.get(word + 1).filter(|arg| !arg.starts_with('-')).cloned()
    };
    flags
        .model
        .iter()
        .find_map(|flag| value_of(argv, flag))
        .or_else(after)
        .or_else(|| flags.env.iter().find_map(|name| env(name)))
        .map(|name| {
            name.chars()
                .filter(|c| !c.is_control())
                .take(NAME_LIMIT)
                .collect::<String>()
        })
        .filter(|name| !name.is_empty())
}

/// The port that the server was told; what it really listens on is better.
pub(super) fn told_port(kind: EngineKind, argv: &[String]) -> Option<u16> {
    flags(kind)
        .port
        .iter()
        .find_map(|flag| value_of(argv, flag)?.parse().ok())
}

/// The port of a server of this kind that was told none.
pub(super) fn well_known_port(kind: EngineKind) -> Option<u16> {
    flags(kind).default_port
}

/// Whether the command line asks for TLS.
pub(super) fn asks_for_tls(argv: &[String]) -> bool {
    [
        "--ssl-keyfile",
        "--ssl-certfile",
        "--ssl-key-file",
        "--ssl-cert-file",
        "--tls-cert",
        "--tls-key",
        "--certfile",
    ]
    .iter()
    .any(|flag| value_of(argv, flag).is_some())
}

/// The value of a flag of an engine's command line; see `value_of`.
pub(crate) fn flag_value(argv: &[String], flag: &str) -> Option<String> {
    value_of(argv, flag)
}

/// The value of `--flag value` or `--flag=value`, where dashes and underscores inside names are the same.
fn value_of(argv: &[String], flag: &str) -> Option<String> {
    // In `python -m module`, `-m` is the interpreter's.
    let first = match super::rules::program_index(argv) {
        Some(index) if argv[index] == "-m" => index + 2,
        _ => 1,
    };
    argv.iter().enumerate().skip(first).find_map(|(index, arg)| {
        let (name, inline) = arg
            .split_once('=')
            .map_or((arg.as_str(), None), |(name, value)| (name, Some(value)));
        if !same_flag(name, flag) {
            return None;
        }
        match inline {
            Some(value) => Some(value.to_owned()),
            None => argv
                .get(index + 1)
                .filter(|value| !value.starts_with("--"))
                .cloned(),
        }
    })
}

fn same_flag(given: &str, flag: &str) -> bool {
    given.len() == flag.len()
        && given
            .bytes()
            .zip(flag.bytes())
            .all(|(a, b)| a == b || (a == b'_' && b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(cmdline: &str) -> Vec<String> {
        cmdline.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_served_name_is_what_clients_say() {
        use EngineKind::{Generic, LlamaCpp, Ollama, Sglang, TensorrtLlm, Tgi, Vllm};
        for (kind, cmdline, expected) in [
            (
                Vllm,
                "python vllm serve org/m --served-model-name small big --port 1",
                Some("small"),
            ),
            (Vllm, "python vllm serve org/m --port 1", Some("org/m")),
            (Vllm, "python vllm serve --config x.yaml", None),
            (
                Vllm,
                "python -m vllm.entrypoints.openai.api_server --model=org/m",
                Some("org/m"),
            ),
            (
                Vllm,
                "python -m vllm.entrypoints.openai.api_server --served_model_name=a --model m",
                Some("a"),
            ),
            (
                Sglang,
                "python3 -m sglang.launch_server --model-path org/m",
                Some("org/m"),
            ),
            (
                LlamaCpp,
                "/app/llama-server -m /models/x.gguf --alias nice",
                Some("nice"),
            ),
            (
                LlamaCpp,
                "/app/llama-server -m /models/x.gguf",
                Some("/models/x.gguf"),
            ),
            (
                LlamaCpp,
                "python3 -m llama_cpp.server --model /models/x.gguf --model_alias y",
                Some("y"),
            ),
            (LlamaCpp, "python3 -m llama_cpp.server", None),
            (Tgi, "text-generation-launcher --model-id org/m", Some("org/m")),
            (
                TensorrtLlm,
                "python /bin/trtllm-serve serve org/m --tp_size 2",
                Some("org/m"),
            ),
            (TensorrtLlm, "python /bin/trtllm-serve org/m", Some("org/m")),
            (TensorrtLlm, "tritonserver --model-repository=/m", None),
            (Ollama, "ollama serve", None),
            (Generic, "server --model m", Some("m")),
            (Generic, "server --model", None),
        ] {
            assert_eq!(
                model_name(kind, &args(cmdline), &|_| None).as_deref(),
                expected,
                "{cmdline}"
            );
        }
        let env = |name: &str| (name == "MODEL_ID").then(|| "from\u{1}env".to_owned());
        assert_eq!(
            model_name(Tgi, &args("text-generation-launcher"), &env).as_deref(),
            Some("fromenv")
        );
        let long = args(&format!("server --model {}", "é".repeat(10_000)));
        assert_eq!(
            model_name(Generic, &long, &|_| None).map(|name| name.chars().count()),
            Some(NAME_LIMIT)
        );
    }

    #[test]
    fn the_port_is_told_or_well_known() {
        let vllm = |cmdline| told_port(EngineKind::Vllm, &args(cmdline));
        assert_eq!(vllm("vllm serve m --port=8123"), Some(8123));
        assert_eq!(vllm("vllm serve m --port 99999"), None);
        assert_eq!(vllm("vllm serve m"), None);
        assert_eq!(well_known_port(EngineKind::Ollama), Some(11_434));
        assert_eq!(well_known_port(EngineKind::Generic), None);
    }

    #[test]
    fn tls_is_asked_for() {
        assert!(asks_for_tls(&args(
            "vllm serve m --ssl-keyfile k --ssl-certfile c"
        )));
        assert!(asks_for_tls(&args("llama-server --ssl-key-file k")));
        assert!(!asks_for_tls(&args("vllm serve m")));
    }
}
