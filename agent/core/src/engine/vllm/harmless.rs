//! What of a message is harmless: it tells how requests fared, and nothing of what they said.
//!
//! Owns: the allow-list, by position in the layout of a release. Refuses: walking messages (whoever blanks one does), and
//! guessing: a field or member that is on no list holds content, and a message that fits no layout is content as a whole.

use super::layouts::{self, Field, Layout, Struct, Use, Version};
use crate::wire::msgpack::Kind;

/// What of a value that holds no others may pass. Its kind and its length always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passes {
    /// Nothing.
    Nothing,
    /// Numbers and truth values.
    Numbers,
    /// Text that is an id.
    Id,
}

/// A place in a message.
#[must_use]
#[derive(Debug, Clone, Copy)]
pub struct Place {
    what: What,
    /// Kinds of values that stand there; any where it is not known.
    kinds: Option<&'static [Kind]>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// A struct as an array; how many fields it has will tell its layout.
    Struct(Struct, Option<Version>),
    Fields(&'static Layout, Option<Version>),
    Outputs(Option<Version>),
    Events,
    Ids,
    Id,
    Number,
    Map(&'static Members),
    Content,
}

/// Members of a map whose numbers are harmless.
#[derive(Debug)]
struct Members {
    /// Their names, sorted by bytes.
    names: &'static [&'static str],
    /// Those that are maps themselves.
    nested: &'static [(&'static str, &'static Members)],
}

const NONE: &[&str] = &[];

static SAMPLING: Members = Members {
    names: &[
        "frequency_penalty",
        "logprobs",
        "max_tokens",
        "min_p",
        "min_tokens",
        "n",
        "presence_penalty",
        "prompt_logprobs",
        "repetition_penalty",
        "temperature",
        "top_k",
        "top_p",
    ],
    nested: &[],
};

static EVENT: Members = Members {
    names: &["timestamp", "type"],
    nested: &[],
};

static PREFILL: Members = Members {
    names: &[
        "num_cache_creation_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_external_cached_tokens",
        "num_local_cached_tokens",
        "num_prompt_tokens",
    ],
    nested: &[],
};

static SCHEDULER: Members = Members {
    names: &[
        "connector_prefix_cache_stats",
        "current_wave",
        "encoder_cache_usage",
        "gpu_cache_usage",
        "iteration_details",
        "kv_cache_usage",
        "num_corrupted_reqs",
        "num_running_reqs",
        "num_skipped_waiting_reqs",
        "num_waiting_reqs",
        "prefix_cache_stats",
        "spec_decoding_stats",
        "step_counter",
    ],
    nested: &[
        ("connector_prefix_cache_stats", &PREFIX_CACHE),
        ("iteration_details", &ITERATION),
        ("prefix_cache_stats", &PREFIX_CACHE),
        ("spec_decoding_stats", &SPECULATION),
    ],
};

static PREFIX_CACHE: Members = Members {
    names: &[
        "hits",
        "preempted_hits",
        "preempted_queries",
        "preempted_requests",
        "queries",
        "requests",
        "reset",
    ],
    nested: &[],
};

static ITERATION: Members = Members {
    names: &[
        "elapsed_ms",
        "is_dummy",
        "iteration_index",
        "num_ctx_requests",
        "num_ctx_tokens",
        "num_encoder_inputs",
        "num_encoder_output_tokens",
        "num_generation_requests",
        "num_generation_tokens",
    ],
    nested: &[],
};

static SPECULATION: Members = Members {
    names: &[
        "num_accepted_tokens",
        "num_draft_tokens",
        "num_drafts",
        "num_spec_tokens",
    ],
    nested: &[],
};

impl Place {
    /// The body of an addition, for an engine of this version.
    pub fn addition(version: Option<&str>) -> Place {
        Place::of_struct(Struct::Request, version.and_then(layouts::version))
    }

    /// The body of an abort.
    pub fn abort() -> Place {
        Place {
            what: What::Ids,
            kinds: Some(&[Kind::Array]),
        }
    }

    /// The body of a step, for an engine of this version.
    pub fn step(version: Option<&str>) -> Place {
        Place::of_struct(Struct::Outputs, version.and_then(layouts::version))
    }

    /// Where nothing is harmless.
    pub fn content() -> Place {
        Place::any(What::Content)
    }

    fn of_struct(of: Struct, release: Option<Version>) -> Place {
        Place {
            what: What::Struct(of, release),
            kinds: Some(&[Kind::Array]),
        }
    }

    fn any(what: What) -> Place {
        Place { what, kinds: None }
    }

    /// Whether a value of this kind may stand here. Where it may not, the layout is another than was thought.
    pub fn admits(&self, kind: Kind) -> bool {
        self.kinds.is_none_or(|kinds| kinds.contains(&kind))
    }

    /// The place, now that an array of so many values, or a map of so many pairs, has begun here; `None` when the release
    /// has no such layout.
    pub fn open(self, count: u64) -> Option<Place> {
        let What::Struct(of, release) = self.what else {
            return Some(self);
        };
        // Without a release any layout might fit, and the wrong one as well.
        release?;
        let fits = |layout: &&Layout| {
            let known = layout.fields.len() as u64;
            count == known || (count > known && layouts::is_newest(of, layout))
        };
        let layout = layouts::candidates(of, release).find(fits)?;
        Some(Place::any(What::Fields(layout, release)))
    }

    /// Where value `index` of this array stands.
    pub fn item(&self, index: u64) -> Place {
        match self.what {
            What::Fields(layout, release) => usize::try_from(index)
                .ok()
                .and_then(|index| layout.fields.get(index))
                .map_or(Place::content(), |field| Place {
                    what: of_field(*field, release),
                    kinds: Some(field.kinds),
                }),
            What::Outputs(release) => Place::of_struct(Struct::Output, release),
            What::Events => Place {
                what: What::Map(&EVENT),
                kinds: Some(&[Kind::Map]),
            },
            What::Ids => Place {
                what: What::Id,
                kinds: Some(&[Kind::Str]),
            },
            _ => Place::content(),
        }
    }

    /// Names in this map that are harmless, sorted by bytes. Other names are content.
    pub fn names(&self) -> &'static [&'static str] {
        match self.what {
            What::Map(members) => members.names,
            _ => NONE,
        }
    }

    /// Where the value of a name of [`Place::names`], by its index, stands; of any other name: `None`.
    pub fn member(&self, name: Option<usize>) -> Place {
        let (What::Map(members), Some(name)) = (self.what, name.and_then(|at| self.names().get(at))) else {
            return Place::content();
        };
        let nested = members.nested.iter().find(|(known, _)| known == name);
        Place::any(nested.map_or(What::Number, |(_, members)| What::Map(members)))
    }

    /// What of a value here passes, when it holds no others.
    pub fn passes(&self) -> Passes {
        match self.what {
            What::Number => Passes::Numbers,
            What::Id => Passes::Id,
            _ => Passes::Nothing,
        }
    }
}

fn of_field(field: Field, release: Option<Version>) -> What {
    match field.use_ {
        Use::RequestId | Use::ExternalReqId => What::Id,
        Use::ArrivalTime | Use::FinishReason | Use::NumCachedTokens | Use::EngineIndex | Use::Timestamp => {
            What::Number
        }
        Use::SamplingParams => What::Map(&SAMPLING),
        Use::PrefillStats => What::Map(&PREFILL),
        Use::SchedulerStats => What::Map(&SCHEDULER),
        Use::Events => What::Events,
        Use::Outputs => What::Outputs(release),
        // Token ids are the text, and so is what stopped it.
        Use::PromptTokenIds
        | Use::NewTokenIds
        | Use::StopReason
        | Use::CacheSalt
        | Use::LoraRequest
        | Use::MultiModal => What::Content,
        // Indices, counts, flags; whatever can be anything else is content.
        Use::Nothing => {
            let plain = |kind: &Kind| matches!(kind, Kind::Int | Kind::Bool | Kind::Float | Kind::Nil);
            if field.kinds.iter().all(plain) {
                What::Number
            } else {
                What::Content
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_nested_ones_are_among_them() {
        for members in [
            &SAMPLING,
            &EVENT,
            &PREFILL,
            &SCHEDULER,
            &PREFIX_CACHE,
            &ITERATION,
            &SPECULATION,
        ] {
            assert!(members.names.is_sorted_by(|a, b| a < b), "{:?}", members.names);
            for (name, _) in members.nested {
                assert!(members.names.contains(name), "{name}");
            }
        }
    }

    #[test]
    fn a_layout_is_chosen_by_release_and_count_or_not_at_all() {
        assert!(Place::addition(Some("0.32.0")).open(22).is_some());
        assert!(
            Place::addition(Some("0.33.0")).open(23).is_some(),
            "newer ones append"
        );
        for (version, count) in [
            (Some("0.32.0"), 21),
            (Some("0.9.2"), 22),
            (None, 22),
            (Some("dev"), 22),
        ] {
            assert!(
                Place::addition(version).open(count).is_none(),
                "{version:?} {count}"
            );
        }
    }

    #[test]
    fn candidates_of_a_release_differ_in_their_number_of_fields() {
        for of in [Struct::Request, Struct::Output, Struct::Outputs] {
            for layout in layouts::all(of) {
                let counts: Vec<usize> = layouts::candidates(of, Some(layout.from))
                    .map(|layout| layout.fields.len())
                    .collect();
                assert!(
                    counts.windows(2).all(|pair| pair[0] != pair[1]),
                    "{of:?} {:?}",
                    layout.from
                );
            }
        }
    }

    #[test]
    fn appended_fields_and_other_names_are_content() {
        let added = Place::addition(Some("0.32.0")).open(24).expect("fits");
        assert_eq!(added.item(0).passes(), Passes::Id);
        assert_eq!(added.item(23).passes(), Passes::Nothing);
        let sampling = added.item(3);
        assert_eq!(sampling.member(None).passes(), Passes::Nothing);
        let at = sampling.names().iter().position(|name| *name == "max_tokens");
        assert_eq!(sampling.member(at).passes(), Passes::Numbers);
        assert_eq!(added.item(1).item(0).passes(), Passes::Nothing, "a token id");
    }
}
