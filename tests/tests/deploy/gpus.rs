//! How the agent gets at NVIDIA's library and the right to probe, in Kubernetes and with systemd.

use crate::packaging::{added, container, document, run_arguments, strings, text};
use infertap::config::Config;
use std::path::Path;

const OVERLAYS: &str = "deploy/kubernetes/overlays";

#[test]
fn the_runtime_class_brings_nvml_and_no_more() {
    let patch = document(&format!("{OVERLAYS}/gpu/daemonset.yaml"));
    let pod = &patch["spec"]["template"]["spec"];
    assert_eq!(pod["runtimeClassName"], "nvidia");
    let variables = container(&patch)["env"].as_array().expect("variables");
    let value = |name: &str| {
        let variable = variables.iter().find(|variable| variable["name"] == name);
        variable.unwrap_or_else(|| panic!("no {name}"))["value"].clone()
    };
    assert_eq!(value("NVIDIA_VISIBLE_DEVICES"), "all");
    assert_eq!(value("NVIDIA_DRIVER_CAPABILITIES"), "utility");
    assert!(
        container(&patch)["resources"].is_null() && container(&patch)["securityContext"].is_null(),
        "it takes no GPU from the scheduler, and no privilege"
    );
}

#[test]
fn without_the_runtime_class_the_hosts_library_is_mounted_and_named() {
    let patch = document(&format!("{OVERLAYS}/gpu-driver-folder/daemonset.yaml"));
    let mounts = container(&patch)["volumeMounts"].as_array().expect("mounts");
    let volumes = patch["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .expect("volumes");
    assert_eq!((mounts.len(), volumes.len()), (1, 1));
    assert_eq!(mounts[0]["name"], volumes[0]["name"]);
    assert_eq!(mounts[0]["readOnly"], true);

    let arguments = added(&format!("{OVERLAYS}/gpu-driver-folder/library.yaml"), "/args/-");
    let mut all = strings(&container(&document("deploy/kubernetes/base/daemonset.yaml"))["args"]);
    all.extend(arguments.clone());
    run_arguments(&all);
    let assignment = arguments[0].strip_prefix("--set=").expect("a setting");
    let (key, library) = assignment.split_once('=').expect("key and value");
    let config: Config = toml_of(key, library);
    assert_eq!(config.gpu.nvml_library, library);
    assert_eq!(
        Path::new(library).parent().and_then(Path::to_str),
        mounts[0]["mountPath"].as_str(),
        "the library is in the folder that is mounted"
    );
    // The devices: only NVIDIA's runtime adds them to the container's control group.
    assert_eq!(container(&patch)["securityContext"]["privileged"], true);
}

/// A configuration of this one key.
fn toml_of(key: &str, value: &str) -> Config {
    let (section, key) = key.split_once('.').expect("a section");
    let text = format!("[{section}]\n{key} = {value:?}\n");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("infertap.toml");
    std::fs::write(&path, text).expect("written");
    infertap::config::check_file(&path)
        .unwrap_or_else(|e| panic!("{e}"))
        .config
}

#[test]
fn the_right_to_probe_functions_is_one_capability() {
    let capabilities = |overlay: &str| added(&format!("{OVERLAYS}/{overlay}"), "/capabilities/add/-");
    assert_eq!(capabilities("calls/sys-admin.yaml"), ["SYS_ADMIN"]);
    assert_eq!(capabilities("uprobe/uprobe.yaml"), ["SYS_ADMIN"]);
    let readme = text("deploy/README.md");
    for overlay in ["gpu", "gpu-driver-folder", "calls"] {
        assert!(
            readme.contains(&format!("| `overlays/{overlay}` |")),
            "deploy/README.md does not tell of {overlay}"
        );
    }
}

#[test]
fn systemd_lets_it_at_the_gpus_and_at_no_other_device() {
    let unit = text("deploy/systemd/infertap.service");
    let lines: Vec<&str> = unit.lines().collect();
    assert!(lines.contains(&"DevicePolicy=closed") && lines.contains(&"DeviceAllow=char-nvidia* rw"));
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("DeviceAllow="))
            .count(),
        1
    );
}
