//! Content of requests that is kept because the operator asked for it: prompts and answers, as they are, redacted or hashed.
//!
//! Owns: of which scene what is kept, holding it while a request is under way, and making of it what may be kept. Refuses:
//! keeping anything on its own (the default is [`Mode::None`]), and headers: none of them is ever part of it.

mod heard;
mod make;
mod rules;
#[cfg(test)]
mod tests;
mod transcript;

pub use heard::{Heard, HeardLimits};
pub use make::{HashKey, transcript};
pub use rules::{ContentRules, Keep};
pub use transcript::{Absent, Message, Mode, Part, PartKind, Side, Transcript};
