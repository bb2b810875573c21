//! Container, Kubernetes and systemd files.

use crate::read_yaml;
use clap::Parser;
use infertap::cli::{Cli, Command as Subcommand};
use infertap::config::SocketProbe;
use infertap_tests::deployed::repository;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    for entry in entries {
        let path = entry.expect("a directory entry").path();
        if path.is_dir() {
            files(&path, out);
        } else {
            out.push(path);
        }
    }
}

fn yaml_files() -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(&repository().join("deploy"), &mut all);
    all.retain(|path| path.extension().is_some_and(|e| e == "yaml" || e == "yml"));
    assert!(!all.is_empty(), "no YAML under deploy/");
    all
}

pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub(crate) fn document(path: &str) -> Value {
    let mut documents = read_yaml(&repository().join(path));
    assert_eq!(documents.len(), 1, "{path} holds one document");
    documents.remove(0)
}

pub(crate) fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| v.as_str().expect("a string").to_owned())
        .collect()
}

pub(crate) fn daemonset() -> Value {
    document("deploy/kubernetes/base/daemonset.yaml")
}

pub(crate) fn container(daemonset: &Value) -> &Value {
    let containers = daemonset["spec"]["template"]["spec"]["containers"]
        .as_array()
        .expect("containers");
    assert_eq!(containers.len(), 1, "the agent alone");
    &containers[0]
}

#[test]
fn every_yaml_file_parses() {
    for path in yaml_files() {
        let documents = read_yaml(&path);
        assert!(!documents.is_empty(), "{} is empty", path.display());
    }
}

#[test]
fn kustomizations_name_files_that_exist_and_leave_none_out() {
    let kustomizations: Vec<_> = yaml_files()
        .into_iter()
        .filter(|p| p.ends_with("kustomization.yaml"))
        .collect();
    assert!(kustomizations.len() > 1, "a base and its overlays");
    for path in kustomizations {
        let dir = path.parent().expect("a folder");
        let kustomization = read_yaml(&path).remove(0);
        let mut named: BTreeSet<PathBuf> = BTreeSet::from([path.clone()]);
        let patches = kustomization["patches"].as_array().into_iter().flatten();
        let generators = kustomization["configMapGenerator"]
            .as_array()
            .into_iter()
            .flatten();
        let references = strings(&kustomization["resources"])
            .into_iter()
            .chain(patches.map(|patch| patch["path"].as_str().expect("a patch in a file").to_owned()))
            .chain(generators.flat_map(|generator| strings(&generator["files"])));
        for reference in references {
            let target = dir.join(&reference);
            assert!(target.exists(), "{}: {reference} does not exist", path.display());
            if target.is_dir() {
                assert!(
                    target.join("kustomization.yaml").is_file(),
                    "{}: {reference} is no base",
                    path.display()
                );
            }
            named.insert(target);
        }
        for entry in std::fs::read_dir(dir).expect("a folder") {
            let file = entry.expect("an entry").path();
            if file.is_file() {
                assert!(
                    named.contains(&file),
                    "{} uses {} nowhere",
                    path.display(),
                    file.display()
                );
            }
        }
    }
}

#[test]
fn the_kubernetes_image_has_the_workspaces_version() {
    let images = document("deploy/kubernetes/base/kustomization.yaml")["images"].clone();
    assert_eq!(images[0]["name"], container(&daemonset())["image"]);
    assert_eq!(images[0]["newTag"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_daemonset_asks_for_what_it_needs_and_no_more() {
    let daemonset = daemonset();
    let pod = &daemonset["spec"]["template"]["spec"];
    let container = container(&daemonset);
    let security = &container["securityContext"];
    assert_eq!(pod["hostPID"], true, "engines are processes of other pods");
    assert_eq!(
        pod["automountServiceAccountToken"], false,
        "the API server is never called"
    );
    for host in ["hostNetwork", "hostIPC"] {
        assert!(pod[host].is_null(), "{host} is not needed");
    }
    assert_eq!(security["privileged"], false);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(strings(&security["capabilities"]["drop"]), ["ALL"]);
    assert!(
        container["resources"]["limits"]["memory"].is_string(),
        "a backstop for its memory"
    );

    let mounts: BTreeSet<_> = container["volumeMounts"]
        .as_array()
        .expect("mounts")
        .iter()
        .map(|mount| {
            let store = infertap::store::StoreConfig::default();
            let folder = store.path.parent().and_then(Path::to_str);
            let state = mount["mountPath"].as_str() == folder;
            assert_eq!(
                mount["readOnly"] != true,
                state,
                "it writes its state alone: {mount}"
            );
            mount["name"].as_str().expect("a name").to_owned()
        })
        .collect();
    let volumes: BTreeSet<_> = pod["volumes"]
        .as_array()
        .expect("volumes")
        .iter()
        .map(|volume| volume["name"].as_str().expect("a name").to_owned())
        .collect();
    assert_eq!(mounts, volumes);
}

#[test]
fn the_daemonsets_ports_and_probes_agree() {
    let daemonset = daemonset();
    let container = container(&daemonset);
    let port = &container["ports"][0];
    let listen = format!("--listen=0.0.0.0:{}", port["containerPort"]);
    assert!(
        strings(&container["args"]).contains(&listen),
        "listens on the port that it declares"
    );
    for (probe, path) in [
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"]["path"], path);
        assert_eq!(container[probe]["httpGet"]["port"], port["name"]);
    }
    let monitor = document("deploy/kubernetes/overlays/prometheus-operator/podmonitor.yaml");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], port["name"]);
    let policy = document("deploy/kubernetes/overlays/prometheus-operator/networkpolicy.yaml");
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], port["name"]);
}

#[test]
fn systemd_and_kubernetes_give_the_same_capabilities_and_the_docs_explain_each() {
    let mut kubernetes: BTreeSet<_> =
        strings(&container(&daemonset())["securityContext"]["capabilities"]["add"])
            .into_iter()
            .collect();
    let readme = text("deploy/README.md");
    for capability in &kubernetes {
        assert!(
            readme.contains(&format!("| `{capability}` |")),
            "deploy/README.md does not explain {capability}"
        );
        let flag = format!("--cap-add={capability} ");
        assert!(
            readme.contains(&flag),
            "deploy/README.md: docker run lacks {flag}"
        );
    }
    let unit = text("deploy/systemd/infertap.service");
    assert!(
        unit.lines().any(|line| line == "StateDirectory=infertap"),
        "systemd makes /var/lib/infertap"
    );
    assert!(
        unit.lines().any(|line| line == "LimitMEMLOCK=infinity"),
        "in place of SYS_RESOURCE"
    );
    kubernetes.remove("SYS_RESOURCE");
    for key in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
        let list = unit
            .lines()
            .find_map(|line| line.strip_prefix(key))
            .expect("a list of capabilities");
        let systemd: BTreeSet<_> = list
            .split_whitespace()
            .map(|c| c.strip_prefix("CAP_").expect("CAP_…").to_owned())
            .collect();
        assert_eq!(kubernetes, systemd, "{key}");
    }
}

#[test]
fn systemd_accepts_the_unit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let unit = text("deploy/systemd/infertap.service");
    let installed = "ExecStart=/usr/local/bin/infertap ";
    assert!(unit.contains(installed), "the unit starts the installed agent");
    // Verification wants a program that is there.
    let path = dir.path().join("infertap.service");
    std::fs::write(&path, unit.replace(installed, "ExecStart=/bin/true ")).expect("written");
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output()
        .unwrap_or_else(|e| {
            panic!("can't run systemd-analyze: {e}; install it with `apt-get install systemd`")
        });
    let complaints = String::from_utf8_lossy(&output.stderr);
    // Other units of the host are none of ours.
    let ours: Vec<_> = complaints
        .lines()
        .filter(|line| line.contains("infertap"))
        .collect();
    assert!(ours.is_empty(), "{}", ours.join("\n"));
    assert!(output.status.success(), "{complaints}");
}

/// The sources of every `COPY` that reads the build context.
fn copied(dockerfile: &str) -> Vec<String> {
    let joined = dockerfile.replace("\\\n", " ");
    joined
        .lines()
        .filter_map(|line| line.trim().strip_prefix("COPY "))
        .filter(|arguments| !arguments.contains("--from="))
        .flat_map(|arguments| {
            let mut words: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
            words.retain(|word| !word.starts_with("--"));
            words.pop();
            words
        })
        .collect()
}

#[test]
fn the_dockerfile_copies_what_exists_and_what_the_ignore_file_lets_through() {
    let dockerfile = text("deploy/container/Dockerfile");
    let ignore = text(".dockerignore");
    let allowed: BTreeSet<_> = ignore.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert!(
        ignore.lines().any(|line| line == "*"),
        "everything is out unless let in"
    );
    let copied = copied(&dockerfile);
    assert!(!copied.is_empty());
    for source in &copied {
        assert!(repository().join(source).exists(), "COPY {source}: no such file");
        assert!(
            allowed.contains(source.as_str()),
            ".dockerignore keeps {source} out"
        );
    }
    for source in allowed {
        assert!(
            copied.iter().any(|c| c == source),
            ".dockerignore lets {source} in for nothing"
        );
    }
}

#[test]
fn the_dockerfile_builds_with_the_workspaces_rust_and_runs_without_a_shell() {
    let dockerfile = text("deploy/container/Dockerfile");
    let manifest = text("Cargo.toml");
    let rust = manifest
        .lines()
        .find_map(|l| l.strip_prefix("rust-version = "))
        .expect("a Rust version")
        .trim_matches('"');
    let stages: Vec<_> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "))
        .collect();
    assert_eq!(stages.len(), 2, "one stage builds, one runs");
    assert!(stages[0].contains(&format!("rust:{rust}-")), "{}", stages[0]);
    assert!(stages[1].contains("distroless"), "{}", stages[1]);
    for member in ["agent", "ebpf", "xtask", "tests"] {
        assert!(
            copied(&dockerfile).iter().any(|c| c == member),
            "Cargo needs the member {member}"
        );
    }
    for exec in ["ENTRYPOINT [", "CMD ["] {
        assert!(
            dockerfile.contains(exec),
            "{exec}…: there is no shell to split words"
        );
    }
    assert!(
        dockerfile.contains("cargo build --locked --release"),
        "the build is the committed lock file's"
    );
}

/// The `run` command that these arguments make.
/// What the operations of a patch add to the list whose path ends like this.
pub(crate) fn added(patch: &str, to: &str) -> Vec<String> {
    let patch = document(patch);
    let operations = patch.as_array().expect("operations").iter();
    operations
        .filter(|operation| operation["path"].as_str().is_some_and(|path| path.ends_with(to)))
        .map(|operation| operation["value"].as_str().expect("a string").to_owned())
        .collect()
}

pub(crate) fn run_arguments(arguments: &[String]) -> infertap::cli::RunArgs {
    let words = std::iter::once("infertap").chain(arguments.iter().map(String::as_str));
    match Cli::try_parse_from(words)
        .unwrap_or_else(|e| panic!("{arguments:?}: {e}"))
        .command
    {
        Subcommand::Run(run) => run,
        other => panic!("{arguments:?} is {other:?}"),
    }
}

#[test]
fn the_agent_understands_every_command_line_that_starts_it() {
    let run = run_arguments(&strings(&container(&daemonset())["args"]));
    assert_eq!(run.listen.map(|address| address.port()), Some(9464));
    let config = run.settings.config.expect("a configuration");
    let mounted = container(&daemonset())["volumeMounts"]
        .as_array()
        .expect("mounts")
        .iter()
        .any(|mount| config.parent().map(Path::as_os_str) == mount["mountPath"].as_str().map(AsRef::as_ref));
    assert!(mounted, "{} is mounted", config.display());

    let mut arguments = strings(&container(&daemonset())["args"]);
    arguments.extend(added("deploy/kubernetes/overlays/uprobe/uprobe.yaml", "/args/-"));
    assert_eq!(
        run_arguments(&arguments).settings.socket_probe,
        Some(SocketProbe::Uprobe)
    );

    let unit = text("deploy/systemd/infertap.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .expect("a command");
    let words: Vec<_> = start.split_whitespace().skip(1).map(str::to_owned).collect();
    assert!(run_arguments(&words).settings.config.is_some());

    let dockerfile = text("deploy/container/Dockerfile");
    let command = dockerfile
        .lines()
        .find_map(|line| line.strip_prefix("CMD "))
        .expect("a default command");
    run_arguments(&serde_json::from_str::<Vec<String>>(command).expect("exec form"));
}

#[test]
fn the_clusters_configuration_is_one() {
    let path = repository().join("deploy/kubernetes/base/infertap.toml");
    infertap::config::check_file(&path).unwrap_or_else(|e| panic!("{e}"));
}
