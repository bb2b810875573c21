//! What a run has shown so far, and which bounds it broke.
//!
//! Owns: printing verdicts alike and remembering the failed ones. Refuses: computing them.

use std::fmt::Display;

/// Whether a bound was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was.
    Pass,
    /// It was not, or there was nothing to judge.
    Fail,
    /// There is none: the numbers are shown for the reader.
    Shown,
}

impl Verdict {
    pub(crate) fn of(kept: bool) -> Verdict {
        if kept { Verdict::Pass } else { Verdict::Fail }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::Shown => "    ",
        })
    }
}

/// One table, computed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Section {
    pub(crate) text: String,
    /// Each bound in words, and whether it was kept.
    pub(crate) verdicts: Vec<(String, Verdict)>,
}

/// The report of a run, printed as it grows.
#[derive(Debug, Default)]
pub(crate) struct Report {
    failed: Vec<String>,
    passed: usize,
}

impl Report {
    pub(crate) fn heading(text: &str) {
        println!("\n## {text}\n");
    }

    pub(crate) fn add(&mut self, section: Section) {
        print!("{}", section.text);
        for (bound, verdict) in section.verdicts {
            match verdict {
                Verdict::Fail => self.failed.push(bound),
                Verdict::Pass => self.passed += 1,
                Verdict::Shown => {}
            }
        }
    }

    pub(crate) fn add_all(&mut self, sections: Vec<Section>) {
        for section in sections {
            self.add(section);
        }
    }

    /// Prints the end; the bounds that were broken.
    pub(crate) fn finish(self) -> Vec<String> {
        println!("\n{} bounds kept, {} broken", self.passed, self.failed.len());
        for bound in &self.failed {
            println!("FAIL {bound}");
        }
        self.failed
    }
}
