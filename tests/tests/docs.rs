//! The documents name what is there: every relative link in a Markdown file leads somewhere, and so does every path in
//! ARCHITECTURE.md's tables.
//!
//! Refuses: links to the network.

use infertap_tests::deployed::repository;
use std::path::{Path, PathBuf};

/// Every Markdown file of the tree, build outputs and hidden folders left out.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![repository()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("a directory entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 3, "found {found:?} only");
    found
}

/// The targets of `[text](target)`, code blocks left out.
fn links(markdown: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut in_code = false;
    for line in markdown.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let mut rest = line;
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, after)) = after.split_once(')') else {
                break;
            };
            out.push(target);
            rest = after;
        }
    }
    out
}

/// GitHub's anchor of a heading.
fn anchor(heading: &str) -> String {
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

fn has_anchor(path: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#').trim()) == wanted)
}

#[test]
fn every_relative_link_leads_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("readable");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                document.clone()
            } else {
                document.with_file_name("").join(path)
            };
            if !target.exists() || (!fragment.is_empty() && !has_anchor(&target, fragment)) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links to nowhere:\n{}", broken.join("\n"));
}

#[test]
fn architecture_names_paths_that_exist() {
    let text = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let roots = ["agent/", "ebpf/", "xtask/", "tests/", "deploy/", "docs/"];
    let paths: Vec<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| roots.iter().any(|root| code.starts_with(root)) && !code.contains(' '))
        .collect();
    assert!(paths.len() > 10, "found {paths:?} only");
    let missing: Vec<_> = paths
        .iter()
        .filter(|path| !repository().join(path).exists())
        .collect();
    assert!(
        missing.is_empty(),
        "ARCHITECTURE.md names {missing:?}, which do not exist"
    );
}

#[test]
fn links_and_anchors_are_read_as_github_reads_them() {
    let text = "a [b](c.md#d) and ![e](f.svg)\n```\n[not](this)\n```\n[g](h) [i](j";
    assert_eq!(links(text), ["c.md#d", "f.svg", "h"]);
    assert_eq!(anchor("Where does it go?"), "where-does-it-go");
    assert_eq!(anchor("`llm_x_total`, explained"), "llm_x_total-explained");
}
