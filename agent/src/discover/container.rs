//! Container and pod of a process, from its control group's path.
//!
//! Owns: the paths that Docker, containerd, CRI-O, Podman and the kubelet make, with either control group version and
//! either driver. Refuses: asking the container runtime.

/// What a control group tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Container {
    /// 64 hexadecimal digits.
    pub(super) id: Option<String>,
    /// UUID (with dashes), or the 32 digits that static pods have.
    pub(super) pod_uid: Option<String>,
}

/// Reads the text of `/proc/PID/cgroup`: `id:controllers:path` lines, one with version 2.
pub(super) fn parse(cgroup: &str) -> Container {
    let mut found = Container::default();
    for line in cgroup.lines() {
        let Some(path) = line.splitn(3, ':').nth(2) else {
            continue;
        };
        let mut here = Container::default();
        // containerd with the systemd driver separates with colons: kubepods-burstable-pod….slice:cri-containerd:….
        for part in path.split(['/', ':']) {
            if let Some(uid) = pod_uid(part) {
                // A nested kubelet's pod is the one that was meant; its container comes after it.
                here = Container {
                    id: None,
                    pod_uid: Some(uid),
                };
            } else if let Some(id) = container_id(part) {
                here.id = Some(id);
            }
        }
        if found.id.is_none() {
            found.id = here.id;
        }
        if found.pod_uid.is_none() {
            found.pod_uid = here.pod_uid;
        }
    }
    found
}

/// `<64 hex>`, `docker-<64 hex>.scope`, `cri-containerd-…`, `crio-…`, `libpod-…`: the digits are the last of the dashed parts.
fn container_id(part: &str) -> Option<String> {
    if part.contains("conmon") {
        return None;
    }
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let id = name.rsplit('-').next()?;
    (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_ascii_lowercase())
}

/// `pod<uid>`, or `kubepods-burstable-pod<uid with underscores>.slice`.
fn pod_uid(part: &str) -> Option<String> {
    let name = part.strip_suffix(".slice").unwrap_or(part);
    let uid = name
        .rsplit_once("-pod")
        .map_or_else(|| name.strip_prefix("pod"), |(_, uid)| Some(uid))?
        .replace('_', "-");
    let groups: Vec<usize> = uid.split('-').map(str::len).collect();
    let shaped = matches!(groups.as_slice(), [8, 4, 4, 4, 12] | [32]);
    (shaped && uid.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit())).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f3f4e5a6b7c8d9e0f";
    const UID: &str = "6f3b1a2c-9d8e-4f70-a1b2-c3d4e5f60718";

    #[test]
    fn paths_of_the_runtimes() {
        let slice = format!("kubepods-burstable-pod{}.slice", UID.replace('-', "_"));
        for (cgroup, id, pod) in [
            ("0::/".to_owned(), false, false),
            (
                "0::/user.slice/user-1000.slice/session-3.scope".to_owned(),
                false,
                false,
            ),
            ("0::/system.slice/ollama.service".to_owned(), false, false),
            (format!("0::/system.slice/docker-{ID}.scope"), true, false),
            (
                format!(
                    "12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service"
                ),
                true,
                false,
            ),
            (
                format!("9:name=systemd:/\n4:memory:/docker/{ID}\n0::/"),
                true,
                false,
            ),
            (format!("11:cpu:/kubepods/besteffort/pod{UID}/{ID}"), true, true),
            (
                format!("0::/kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{ID}.scope"),
                true,
                true,
            ),
            (
                format!("0::/kubepods.slice/kubepods-burstable.slice/{slice}/crio-{ID}.scope"),
                true,
                true,
            ),
            (
                format!("0::/kubepods.slice/{slice}/crio-conmon-{ID}.scope"),
                false,
                true,
            ),
            (
                format!("5:cpu:/system.slice/containerd.service/{slice}:cri-containerd:{ID}"),
                true,
                true,
            ),
            (
                format!("0::/machine.slice/libpod-{ID}.scope/container"),
                true,
                false,
            ),
            (
                format!(
                    "0::/docker/{}/kubelet.slice/{slice}/cri-containerd-{ID}.scope",
                    "0".repeat(64)
                ),
                true,
                true,
            ),
            (format!("0::/kubepods/pod{}/{ID}", "a".repeat(32)), true, false),
        ] {
            let found = parse(&cgroup);
            assert_eq!(found.id.as_deref(), id.then_some(ID), "{cgroup}");
            if pod {
                assert_eq!(found.pod_uid.as_deref(), Some(UID), "{cgroup}");
            }
        }
        assert_eq!(
            parse(&format!("0::/kubepods/pod{}/{ID}", "a".repeat(32))).pod_uid,
            Some("a".repeat(32))
        );
        assert_eq!(parse("0::/podman/pod-x/podabc").pod_uid, None);
    }

    proptest! {
        #[test]
        fn any_text_is_only_no_container(text in "\\PC{0,200}") {
            let _ = parse(&text);
        }
    }
}
