//! One call of a tokenizer, and the calls of one request taken together.
//!
//! Owns: reading a call's function, times and count of tokens, and their sums. Refuses: saying whose a call is
//! (`tokenize`).

use super::count;
use crate::{EngineKind, Nanos, event::Call};
use infertap_abi::Function;

/// One text that became tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextCall {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    pub(crate) begin: Nanos,
    pub(crate) end: Nanos,
    /// How many tokens it gave; `None` where that cannot be read.
    pub(crate) tokens: Option<u64>,
    /// The engine serves a request in the thread that read it.
    pub(crate) in_serving_thread: bool,
}

impl TextCall {
    /// The call of a tokenizer; `None`: of something else.
    pub(crate) fn of(call: &Call<'_>, engine: EngineKind) -> Option<TextCall> {
        let tokens = match call.function {
            Function::LlamaTokenize => call.ret.and_then(count::tokens_returned),
            Function::HfTokenizersEncode => count::encoding_tokens(call.bytes),
            Function::TiktokenEncode => count::vector_tokens(call.bytes),
            _ => return None,
        };
        Some(TextCall {
            tgid: call.tgid,
            tid: call.tid,
            begin: call.begin,
            end: call.end,
            tokens,
            in_serving_thread: call.function == Function::LlamaTokenize && engine == EngineKind::LlamaCpp,
        })
    }
}

/// Time in the tokenizer, of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) calls: u64,
    pub(super) nanos: u64,
    /// When the first began.
    pub(super) begin: Nanos,
    /// All together; `None` when one of them did not tell.
    tokens: Option<u64>,
    /// Of the call that gave the most.
    largest: Option<u64>,
}

impl Span {
    fn of(call: &TextCall) -> Span {
        Span {
            calls: 1,
            nanos: call.end.saturating_sub(call.begin),
            begin: call.begin,
            tokens: call.tokens,
            largest: call.tokens,
        }
    }

    pub(super) fn add(&mut self, call: &TextCall) {
        let other = Span::of(call);
        if self.calls == 0 {
            *self = other;
            return;
        }
        self.calls += 1;
        self.nanos = self.nanos.saturating_add(other.nanos);
        self.begin = self.begin.min(other.begin);
        self.tokens = self.tokens.zip(other.tokens).map(|(a, b)| a.saturating_add(b));
        self.largest = self.largest.zip(other.largest).map(|(a, b)| a.max(b));
    }

    /// What the response says of its prompt can be what these calls gave. Templates are tokenized in pieces, or whole
    /// after their pieces.
    pub(super) fn agrees(&self, prompt_tokens: Option<u64>) -> bool {
        match (prompt_tokens, self.tokens, self.largest) {
            (Some(told), Some(sum), Some(largest)) => told == sum || told == largest,
            _ => true,
        }
    }
}
