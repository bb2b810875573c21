//! How many tokens an engine takes in one request: its command line tells, else the model's files.
//!
//! Owns: the options of each engine, and the keys of the files. Refuses: asking the engine, and guessing where an engine
//! chooses by its memory: what is not told is absent.

use super::beneath::Root;
use super::files::{self, MAX_PROCESSES, MAX_SMALL};
use crate::discover::{Host, flag_value};
use infertap_core::ledger::{ContextLimit, LimitSource};
use infertap_core::{EngineInfo, EngineKind, gguf::Gguf};
use serde_json::Value;
use std::io::BufReader;

/// More than any model holds: a number beyond is a sentinel or nonsense.
const MOST: u64 = 1 << 30;

/// The context limit of an engine, where it is told.
pub fn context_limit(host: &Host, engine: &EngineInfo) -> Option<ContextLimit> {
    let first = std::iter::once(engine.pid);
    let others = engine.pids.iter().copied().filter(|pid| *pid != engine.pid);
    let pids: Vec<u32> = first.chain(others).take(MAX_PROCESSES).collect();
    pids.into_iter()
        .find_map(|pid| of_process(host, pid, engine.kind))
}

fn of_process(host: &Host, pid: u32, kind: EngineKind) -> Option<ContextLimit> {
    let argv = host.cmdline(pid).ok()?;
    let env = |name: &str| host.env(pid, name);
    let slots = slots(kind, &argv, &env);
    let limit = |tokens: u64, source| {
        let tokens = tokens / slots;
        (1..=MOST)
            .contains(&tokens)
            .then_some(ContextLimit { tokens, source })
    };
    if let Some(tokens) = told(kind, &argv, &env) {
        return limit(tokens, LimitSource::CommandLine);
    }
    limit(in_files(host, pid, kind, &argv)?, LimitSource::Files)
}

/// What the command line or the environment says; `None` also where it leaves the choice to the engine.
fn told(kind: EngineKind, argv: &[String], env: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let (flags, names): (&[&str], &[&str]) = match kind {
        EngineKind::Vllm => (&["--max-model-len"], &[]),
        EngineKind::Sglang => (&["--context-length"], &[]),
        EngineKind::LlamaCpp => (&["--ctx-size", "-c", "--n-ctx"], &["LLAMA_ARG_CTX_SIZE"]),
        EngineKind::Tgi => (&["--max-total-tokens"], &["MAX_TOTAL_TOKENS"]),
        EngineKind::TensorrtLlm => (&["--max-seq-len"], &[]),
        EngineKind::Generic => (&["--max-model-len", "--ctx-size", "--context-length"], &[]),
        EngineKind::Ollama => (&[], &["OLLAMA_CONTEXT_LENGTH"]),
        EngineKind::Gateway => return None,
    };
    let said = flags.iter().find_map(|flag| flag_value(argv, flag));
    let said = said.or_else(|| names.iter().find_map(|name| env(name)));
    tokens(&said?).filter(|tokens| *tokens > 0)
}

/// A number as engines take it: vLLM also `32k` (thousands) and `32K` (of 1,024).
fn tokens(text: &str) -> Option<u64> {
    let units = [("k", 1e3), ("K", 1024.0), ("m", 1e6), ("M", 1024.0 * 1024.0)];
    let (number, unit) = units
        .into_iter()
        .find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)))
        .unwrap_or((text, 1.0));
    let number = number.trim().parse::<f64>().ok()? * unit;
    (0.0..=MOST as f64).contains(&number).then_some(number as u64)
}

/// Into how many parts llama.cpp divides its context: one for each request at a time, unless they share it.
fn slots(kind: EngineKind, argv: &[String], env: &dyn Fn(&str) -> Option<String>) -> u64 {
    if kind != EngineKind::LlamaCpp || argv.iter().any(|arg| arg == "--kv-unified" || arg == "-kvu") {
        return 1;
    }
    let said = ["--parallel", "-np", "--n-parallel"]
        .iter()
        .find_map(|flag| flag_value(argv, flag));
    let said = said.or_else(|| env("LLAMA_ARG_N_PARALLEL"));
    said.and_then(|text| text.parse().ok())
        .filter(|slots| *slots > 0)
        .unwrap_or(1)
}

/// What the model was made for.
fn in_files(host: &Host, pid: u32, kind: EngineKind, argv: &[String]) -> Option<u64> {
    let env = |name: &str| host.env(pid, name);
    // A tokenizer of its own tells nothing of the model.
    let argv = without(
        argv,
        &["--tokenizer", "--tokenizer-path", "--tokenizer-config-path"],
    );
    let told = files::told(kind, &argv, &env);
    let mut places = told.places;
    if places.is_empty() && matches!(kind, EngineKind::LlamaCpp | EngineKind::Generic) {
        places = host.mapped(pid).map(|mapped| mapped.models).unwrap_or_default();
        places.truncate(1);
    }
    let root = Root::open(&host.path(pid, "root")).ok()?;
    let folder = std::fs::read_link(host.path(pid, "cwd")).unwrap_or_default();
    places.iter().find_map(|place| {
        let path = folder.join(place).to_string_lossy().into_owned();
        if files::is_gguf(place) {
            return gguf(&root, &path);
        }
        let folders = if root.names(&path, 1).is_empty() {
            files::snapshots(&root, place, told.revision.as_deref(), &env)
        } else {
            vec![path]
        };
        folders.iter().find_map(|folder| {
            let parsed = |name: &str| -> Option<Value> {
                let bytes = root.read(&format!("{folder}/{name}"), MAX_SMALL).ok()??;
                serde_json::from_slice(&bytes).ok()
            };
            let longest = hugging_face(&parsed("config.json")?)?;
            let tokenizer =
                parsed("tokenizer_config.json").and_then(|all| positive(&all, "model_max_length"));
            Some(tokenizer.map_or(longest, |most| most.min(longest)))
        })
    })
}

/// The command line without options that take a value.
fn without(argv: &[String], flags: &[&str]) -> Vec<String> {
    let mut out = Vec::new();
    let mut skip = false;
    for arg in argv {
        if std::mem::take(&mut skip) {
            continue;
        }
        let name = arg.split('=').next().unwrap_or_default().replace('_', "-");
        if flags.contains(&&*name) {
            skip = !arg.contains('=');
        } else {
            out.push(arg.clone());
        }
    }
    out
}

fn gguf(root: &Root, path: &str) -> Option<u64> {
    let file = root.file(path).ok()?;
    let input = BufReader::with_capacity(1 << 16, file);
    let wanted = |key: &str| key == "general.architecture" || key.ends_with(".context_length");
    let gguf = Gguf::read(input, wanted).ok()?;
    gguf.uint(&format!("{}.context_length", gguf.text("general.architecture")?))
}

/// The length that a model's `config.json` tells, as engines read it.
fn hugging_face(config: &Value) -> Option<u64> {
    // A model of several kinds of input has that of its text apart.
    let config = config
        .get("text_config")
        .filter(|text| text.is_object())
        .unwrap_or(config);
    let names = [
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_sequence_length",
        "max_seq_length",
    ];
    let longest = names.into_iter().find_map(|name| positive(config, name))?;
    let rope = config
        .get("rope_scaling")
        .or_else(|| config.get("rope_parameters"));
    let Some(rope) = rope.filter(|rope| rope.is_object()) else {
        return Some(longest);
    };
    let kind = rope
        .get("rope_type")
        .or_else(|| rope.get("type"))
        .and_then(Value::as_str);
    let factor = rope
        .get("factor")
        .and_then(Value::as_f64)
        .filter(|factor| *factor >= 1.0);
    let scaled = |length: u64| factor.map_or(length, |factor| ((length as f64 * factor) as u64).min(MOST));
    Some(match kind {
        Some("yarn") => scaled(positive(rope, "original_max_position_embeddings").unwrap_or(longest)),
        Some("linear" | "dynamic") => scaled(longest),
        // Of the others the length is told scaled already.
        _ => longest,
    })
}

/// A whole number that can be a length.
fn positive(object: &Value, name: &str) -> Option<u64> {
    let number = object.get(name)?.as_f64()?;
    (1.0..=MOST as f64).contains(&number).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(kind: EngineKind, line: &str) -> Option<u64> {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let none = |_: &str| None;
        told(kind, &argv, &none).map(|tokens| tokens / slots(kind, &argv, &none))
    }

    #[test]
    fn command_lines_tell_the_limit() {
        use EngineKind::{LlamaCpp, Ollama, Sglang, TensorrtLlm, Tgi, Vllm};
        for (kind, line, expected) in [
            (
                Vllm,
                "python /bin/vllm serve org/m --max-model-len 4096",
                Some(4096),
            ),
            (
                Vllm,
                "python /bin/vllm serve org/m --max_model_len=32k",
                Some(32_000),
            ),
            (
                Vllm,
                "python /bin/vllm serve org/m --max-model-len 1.5K",
                Some(1536),
            ),
            (Vllm, "python /bin/vllm serve org/m --max-model-len auto", None),
            (Vllm, "python /bin/vllm serve org/m --max-model-len -1", None),
            (Vllm, "python /bin/vllm serve org/m", None),
            (
                Sglang,
                "python -m sglang.launch_server --model-path m --context-length 8192",
                Some(8192),
            ),
            (LlamaCpp, "llama-server -m a.gguf -c 8192 -np 4", Some(2048)),
            (
                LlamaCpp,
                "llama-server -m a.gguf --ctx-size 8192 --parallel 4 --kv-unified",
                Some(8192),
            ),
            (LlamaCpp, "llama-server -m a.gguf -c 8192", Some(8192)),
            (LlamaCpp, "llama-server -m a.gguf -c 0 -np 2", None),
            (LlamaCpp, "llama-server -m a.gguf -np 2", None),
            (
                Tgi,
                "text-generation-launcher --model-id m --max-total-tokens 2048",
                Some(2048),
            ),
            (
                TensorrtLlm,
                "python trtllm-serve serve m --max_seq_len 1024",
                Some(1024),
            ),
            (Ollama, "ollama serve", None),
            (Vllm, "vllm serve m --max-model-len 99999999999999999999", None),
        ] {
            assert_eq!(of(kind, line), expected, "{line}");
        }
        let env = |name: &str| (name == "LLAMA_ARG_CTX_SIZE").then(|| "1024".to_owned());
        assert_eq!(told(LlamaCpp, &["llama-server".to_owned()], &env), Some(1024));
    }

    #[test]
    fn the_models_own_length_is_scaled_as_engines_do_it() {
        for (config, expected) in [
            (json!({"max_position_embeddings": 8192}), Some(8192)),
            (json!({"n_positions": 1024}), Some(1024)),
            (
                json!({"text_config": {"max_position_embeddings": 4096}, "max_position_embeddings": 1}),
                Some(4096),
            ),
            (
                json!({"max_position_embeddings": 40_960, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                    "original_max_position_embeddings": 32_768}}),
                Some(131_072),
            ),
            (
                json!({"max_position_embeddings": 2048, "rope_scaling": {"type": "linear", "factor": 2}}),
                Some(4096),
            ),
            (
                json!({"max_position_embeddings": 131_072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
                Some(131_072),
            ),
            (
                json!({"max_position_embeddings": 2048, "rope_scaling": null}),
                Some(2048),
            ),
            (json!({"max_position_embeddings": -1}), None),
            (json!({"max_position_embeddings": "many"}), None),
            (json!([]), None),
        ] {
            assert_eq!(hugging_face(&config), expected, "{config}");
        }
        assert_eq!(
            positive(&json!({"model_max_length": 1e30}), "model_max_length"),
            None
        );
    }

    #[test]
    fn a_tokenizer_of_its_own_is_not_the_model() {
        let argv = [
            "vllm",
            "serve",
            "m",
            "--tokenizer",
            "t",
            "--tokenizer=t",
            "--port",
            "1",
        ]
        .map(str::to_owned);
        assert_eq!(
            without(&argv, &["--tokenizer"]),
            ["vllm", "serve", "m", "--port", "1"]
        );
    }
}
