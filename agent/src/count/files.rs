//! Where an engine's tokenizer is: its command line, its environment, its mapped files and Hugging Face's cache tell.
//!
//! Owns: finding the files, reading them with bounds, as the engine's process sees them. Refuses: executing anything,
//! downloading, and looking beyond what the engine itself was told.

use super::beneath::{self, Identity, Root};
use super::model::{HuggingFace, Model};
use crate::discover::Host;
use infertap_core::{EngineInfo, EngineKind};
use std::io::BufReader;
use std::path::Path;

/// Largest `tokenizer.json`: those of the largest vocabularies are some 35 MB.
const MAX_TOKENIZER: u64 = 128 << 20;
pub(super) const MAX_SMALL: u64 = 8 << 20;
/// Snapshots of a model in the cache that are looked at.
const MAX_SNAPSHOTS: usize = 64;
/// Processes of an engine that are looked at.
pub(super) const MAX_PROCESSES: usize = 8;

/// What an engine's command line tells of its tokenizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// A folder, a file, or a name on the hub, best first.
    pub(super) places: Vec<String>,
    pub(super) revision: Option<String>,
    /// A template's file.
    template: Option<String>,
    /// Why what it does can't be followed.
    obstacle: Option<&'static str>,
}

/// A model that was found, and the file by which it is known again.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) model: Result<Model, String>,
    pub(super) identity: Identity,
}

/// Finds the model of an engine. `known`: whether that file is loaded already, then it is not read again.
///
/// # Errors
/// Why there is none.
pub(super) fn find(
    host: &Host,
    engine: &EngineInfo,
    known: &dyn Fn(Identity) -> bool,
) -> Result<Result<Identity, Found>, String> {
    if engine.kind == EngineKind::Ollama {
        return Err("Ollama's templates are not understood".to_owned());
    }
    let mut why = None;
    let first = std::iter::once(engine.pid);
    let others = engine.pids.iter().copied().filter(|pid| *pid != engine.pid);
    for pid in first.chain(others).take(MAX_PROCESSES) {
        match of_process(host, pid, engine.kind, known) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(reason) => why = why.or(Some(reason)),
        }
    }
    Err(why.unwrap_or_else(|| "its command line names no model whose files are there".to_owned()))
}

pub(super) fn is_gguf(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The model of a file that the operator names: a `tokenizer.json`, its folder, or a GGUF file.
///
/// # Errors
/// Why there is none.
pub(super) fn named(
    path: &str,
    kind: EngineKind,
    known: &dyn Fn(Identity) -> bool,
) -> Result<Result<Identity, Found>, String> {
    let root = Root::open(Path::new("/")).map_err(|error| error.to_string())?;
    if is_gguf(path) {
        return gguf(&root, path, kind, None, known);
    }
    let folder = path.strip_suffix("/tokenizer.json").unwrap_or(path);
    hugging_face(&root, folder, kind, None, known)?
        .ok_or_else(|| format!("no tokenizer.json is there in {folder}"))
}

fn of_process(
    host: &Host,
    pid: u32,
    kind: EngineKind,
    known: &dyn Fn(Identity) -> bool,
) -> Result<Option<Result<Identity, Found>>, String> {
    let Ok(argv) = host.cmdline(pid) else {
        return Ok(None);
    };
    let env = |name: &str| host.env(pid, name);
    let told = told(kind, &argv, &env);
    if let Some(obstacle) = told.obstacle {
        return Err(obstacle.to_owned());
    }
    let mut places = told.places.clone();
    if places.is_empty() && matches!(kind, EngineKind::LlamaCpp | EngineKind::Generic) {
        places = host.mapped(pid).map(|mapped| mapped.models).unwrap_or_default();
        places.truncate(1);
    }
    if places.is_empty() {
        return Ok(None);
    }
    let root =
        Root::open(&host.path(pid, "root")).map_err(|e| format!("its files can't be looked at: {e}"))?;
    // What is relative is so to the folder that it works in.
    let folder = std::fs::read_link(host.path(pid, "cwd"))
        .map(|path| path.to_string_lossy().into_owned())
        .unwrap_or_default();
    let absolute = |path: &str| {
        if path.starts_with('/') {
            path.to_owned()
        } else {
            format!("{folder}/{path}")
        }
    };
    let template = match &told.template {
        Some(path) => Some(
            root.read(&absolute(path), MAX_SMALL)
                .ok()
                .flatten()
                .ok_or_else(|| format!("its chat template {path} can't be read"))?,
        ),
        None => None,
    };
    for place in &places {
        let path = absolute(place);
        if is_gguf(place) {
            return gguf(&root, &path, kind, template.as_deref(), known).map(Some);
        }
        let folders = if root.names(&path, 1).is_empty() {
            snapshots(&root, place, told.revision.as_deref(), &env)
        } else {
            vec![path]
        };
        for folder in folders {
            if let Some(found) = hugging_face(&root, &folder, kind, template.as_deref(), known)? {
                return Ok(Some(found));
            }
        }
    }
    Err(format!("no tokenizer.json is there for {}", places.join(", ")))
}

fn gguf(
    root: &Root,
    path: &str,
    kind: EngineKind,
    template: Option<&[u8]>,
    known: &dyn Fn(Identity) -> bool,
) -> Result<Result<Identity, Found>, String> {
    let unreadable = |error: std::io::Error| format!("{path} can't be read: {error}");
    let file = root.file(path).map_err(unreadable)?;
    let identity = beneath::identity(&file).map_err(unreadable)?;
    if known(identity) {
        return Ok(Ok(identity));
    }
    let input = BufReader::with_capacity(1 << 16, file);
    let model =
        Model::from_gguf(kind, input, template).map_err(|error| format!("{path} can't be used: {error}"));
    Ok(Err(Found { model, identity }))
}

fn hugging_face(
    root: &Root,
    folder: &str,
    kind: EngineKind,
    template: Option<&[u8]>,
    known: &dyn Fn(Identity) -> bool,
) -> Result<Option<Result<Identity, Found>>, String> {
    let path = format!("{folder}/tokenizer.json");
    let Ok(file) = root.file(&path) else {
        return Ok(None);
    };
    let unreadable = |error: std::io::Error| format!("a file in {folder} can't be read: {error}");
    let identity = beneath::identity(&file).map_err(unreadable)?;
    if known(identity) {
        return Ok(Some(Ok(identity)));
    }
    let small = |name: &str| {
        root.read(&format!("{folder}/{name}"), MAX_SMALL)
            .map_err(unreadable)
    };
    let files = HuggingFace {
        tokenizer: root
            .read(&path, MAX_TOKENIZER)
            .map_err(unreadable)?
            .unwrap_or_default(),
        tokenizer_config: small("tokenizer_config.json")?,
        chat_template: match template {
            Some(template) => Some(template.to_vec()),
            None => small("chat_template.jinja")?,
        },
        config: small("config.json")?,
    };
    let model =
        Model::from_hugging_face(kind, &files).map_err(|error| format!("{folder} can't be used: {error}"));
    Ok(Some(Err(Found { model, identity })))
}

/// The folders of a model's snapshots in Hugging Face's cache: the one that its branch points to first.
pub(super) fn snapshots(
    root: &Root,
    name: &str,
    revision: Option<&str>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let is_name = name.split('/').count() <= 2
        && !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'_' | b'.'))
        && !name.contains("..");
    if !is_name {
        return Vec::new();
    }
    let home = env("HOME").unwrap_or_else(|| "/root".to_owned());
    let hub = env("HF_HUB_CACHE")
        .or_else(|| env("HUGGINGFACE_HUB_CACHE"))
        .or_else(|| env("HF_HOME").map(|folder| format!("{folder}/hub")))
        .or_else(|| env("XDG_CACHE_HOME").map(|folder| format!("{folder}/huggingface/hub")))
        .unwrap_or_else(|| format!("{home}/.cache/huggingface/hub"));
    let model = format!("{hub}/models--{}", name.replace('/', "--"));
    let revision = revision.unwrap_or("main");
    let mut commits: Vec<String> = Vec::new();
    if let Ok(Some(bytes)) = root.read(&format!("{model}/refs/{revision}"), 256) {
        commits.push(String::from_utf8_lossy(&bytes).trim().to_owned());
    } else {
        commits.push(revision.to_owned());
        commits.extend(root.names(&format!("{model}/snapshots"), MAX_SNAPSHOTS));
    }
    commits
        .into_iter()
        .filter(|commit| !commit.contains('/'))
        .map(|commit| format!("{model}/snapshots/{commit}"))
        .collect()
}

pub(super) fn told(kind: EngineKind, argv: &[String], env: &dyn Fn(&str) -> Option<String>) -> Told {
    use crate::discover::flag_value as value;
    let first = |flags: &[&str]| flags.iter().find_map(|flag| value(argv, flag));
    let mut told = Told {
        template: first(&["--chat-template", "--chat-template-file", "--jinja-template"]),
        revision: first(&["--tokenizer-revision", "--revision"]),
        ..Told::default()
    };
    match kind {
        EngineKind::LlamaCpp => {
            told.places
                .extend(first(&["--model", "-m"]).or_else(|| env("LLAMA_ARG_MODEL")));
            told.template = first(&["--chat-template-file"]).or_else(|| env("LLAMA_ARG_CHAT_TEMPLATE_FILE"));
            if first(&["--chat-template"]).is_some() || env("LLAMA_ARG_CHAT_TEMPLATE").is_some() {
                told.obstacle = Some("its command line gives the chat template itself");
            } else if argv.iter().any(|arg| arg == "--no-jinja") {
                told.obstacle =
                    Some("it was started with --no-jinja: it does not render the model's template");
            } else if first(&["--override-kv"]).is_some() {
                told.obstacle = Some("its command line overrides what the model's file says (--override-kv)");
            }
            return told;
        }
        EngineKind::Vllm | EngineKind::Generic | EngineKind::TensorrtLlm => {
            told.places.extend(
                first(&["--tokenizer"]).or_else(|| first(&["--model", "--model-path", "--model-id"])),
            );
            let words: &[&str] = if kind == EngineKind::TensorrtLlm {
                &["serve", "trtllm-serve"]
            } else {
                &["serve"]
            };
            if told.places.is_empty() {
                let after = words.iter().find_map(|word| {
                    let at = argv.iter().position(|arg| arg.rsplit('/').next() == Some(word))?;
                    argv.get(at + 1).filter(|arg| !arg.starts_with('-'))
                });
                told.places.extend(after.cloned());
            }
            let mode = first(&["--tokenizer-mode"]);
            if mode
                .as_deref()
                .is_some_and(|mode| !matches!(mode, "auto" | "hf" | "fast"))
            {
                told.obstacle = Some("its tokenizer mode is not Hugging Face's (--tokenizer-mode)");
            }
            if first(&["--default-chat-template-kwargs", "--chat-template-content-format"]).is_some() {
                told.obstacle = Some("its command line changes what the chat template is given");
            }
        }
        EngineKind::Sglang => {
            told.places
                .extend(first(&["--tokenizer-path", "--model-path", "--model"]));
        }
        EngineKind::Tgi => {
            told.places
                .extend(first(&["--tokenizer-config-path", "--model-id"]).or_else(|| env("MODEL_ID")));
        }
        // What passes requests on counts nothing.
        EngineKind::Ollama | EngineKind::Gateway => {}
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: EngineKind, line: &str) -> Told {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        told(kind, &argv, &|_| None)
    }

    #[test]
    fn command_lines_tell_where_the_tokenizer_is() {
        use EngineKind::{Generic, LlamaCpp, Sglang, TensorrtLlm, Tgi, Vllm};
        for (kind, line, place) in [
            (Vllm, "python /bin/vllm serve org/m --port 1", Some("org/m")),
            (
                Vllm,
                "python /bin/vllm serve /models/m --served-model-name x",
                Some("/models/m"),
            ),
            (
                Vllm,
                "python /bin/vllm serve org/m --tokenizer other/t",
                Some("other/t"),
            ),
            (
                Vllm,
                "python -m vllm.entrypoints.openai.api_server --model=org/m",
                Some("org/m"),
            ),
            (
                Sglang,
                "python3 -m sglang.launch_server --model-path org/m",
                Some("org/m"),
            ),
            (
                LlamaCpp,
                "/app/llama-server -m /models/x.gguf --alias nice",
                Some("/models/x.gguf"),
            ),
            (LlamaCpp, "/app/llama-server -hf org/m", None),
            (Tgi, "text-generation-launcher --model-id org/m", Some("org/m")),
            (TensorrtLlm, "python /bin/trtllm-serve serve org/m", Some("org/m")),
            (Generic, "server --model m", Some("m")),
        ] {
            let told = of(kind, line);
            assert_eq!(told.places.first().map(String::as_str), place, "{line}");
            assert_eq!(told.obstacle, None, "{line}");
        }
        for (kind, line) in [
            (Vllm, "vllm serve m --tokenizer-mode mistral"),
            (Vllm, "vllm serve m --chat-template-content-format openai"),
            (LlamaCpp, "/app/llama-server -m a.gguf --no-jinja"),
            (LlamaCpp, "/app/llama-server -m a.gguf --chat-template chatml"),
            (
                LlamaCpp,
                "/app/llama-server -m a.gguf --override-kv tokenizer.ggml.add_bos_token=bool:true",
            ),
        ] {
            assert!(of(kind, line).obstacle.is_some(), "{line}");
        }
    }

    #[test]
    fn the_hubs_cache_is_looked_through_as_the_hub_does_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let model = folder.path().join("cache/hub/models--org--m");
        for commit in ["aaa", "bbb"] {
            std::fs::create_dir_all(model.join("snapshots").join(commit)).expect("a folder");
        }
        std::fs::create_dir_all(model.join("refs")).expect("a folder");
        std::fs::write(model.join("refs/main"), "bbb\n").expect("a file");
        let root = Root::open(folder.path()).expect("the root");
        let env = |name: &str| (name == "HF_HOME").then(|| "/cache".to_owned());
        let found = |name, revision| snapshots(&root, name, revision, &env);
        assert_eq!(found("org/m", None), ["/cache/hub/models--org--m/snapshots/bbb"]);
        assert_eq!(
            found("org/m", Some("aaa"))[0],
            "/cache/hub/models--org--m/snapshots/aaa"
        );
        for name in ["/org/m", "../m", "a/b/c", "", "a b"] {
            let found = found(name, None);
            assert!(found.is_empty(), "{name}: {found:?}");
        }
    }
}
