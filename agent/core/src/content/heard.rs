//! What a request and its answer say, held while it is under way, when it may have to be kept.
//!
//! Owns: the raw text, and its bounds: of one request and of all together. Refuses: showing it: [`transcript`](super::transcript)
//! makes of it what may be kept, and headers never come here.

use super::{Absent, ContentRules, Keep};
use crate::{
    count::Budget,
    protocol::{Protocol, Said, SaidKind},
    wire::sse::SseEvent,
};
use std::{fmt, sync::Arc};

/// Choices of a streamed answer that are held, and calls of tools of each.
const MAX_CHOICES: usize = 128;
const MAX_CALLS: usize = 128;
/// Bytes are asked of the budget in pieces of this size.
const STEP: usize = 16 * 1024;

/// How much may be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeardLimits {
    /// Bytes of one request's body, and as many of its answer.
    pub one: usize,
    /// Bytes of all requests together.
    pub all: usize,
}

/// What one choice of a streamed answer has said so far.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) index: u32,
    pub(super) reasoning: String,
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Default)]
pub(super) struct Call {
    index: u32,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// What one request and its answer say.
pub struct Heard {
    pub(super) protocol: &'static dyn Protocol,
    budget: Budget,
    /// As they were when it began.
    rules: Arc<ContentRules>,
    limits: HeardLimits,
    taken: usize,
    used_in: usize,
    used_out: usize,
    /// The request's body.
    pub(super) request: Vec<u8>,
    /// An answer that is one document.
    pub(super) document: Vec<u8>,
    /// An answer that is streamed.
    pub(super) choices: Vec<Choice>,
    pub(super) lost_in: Option<Absent>,
    pub(super) lost_out: Option<Absent>,
}

impl Heard {
    pub(crate) fn new(
        protocol: &'static dyn Protocol,
        budget: &Budget,
        rules: &Arc<ContentRules>,
        limits: HeardLimits,
    ) -> Heard {
        Heard {
            protocol,
            budget: budget.clone(),
            rules: Arc::clone(rules),
            limits,
            taken: 0,
            used_in: 0,
            used_out: 0,
            request: Vec::new(),
            document: Vec::new(),
            choices: Vec::new(),
            lost_in: None,
            lost_out: None,
        }
    }

    /// What may be kept of it where its scene is this one and this is the rule now: what the rules of its begin allow too.
    pub fn keep(&self, scene: &str, now: Keep) -> Keep {
        self.rules.of(scene).both(now)
    }

    /// Bytes of the text that is held.
    pub fn bytes(&self) -> usize {
        self.used_in + self.used_out
    }

    /// More of the request's body, its coding undone.
    pub(crate) fn request_data(&mut self, bytes: &[u8]) {
        if self.lost_in.is_some() {
            return;
        }
        match self.reserve(self.used_in, bytes.len()) {
            Ok(()) => {
                self.used_in += bytes.len();
                self.request.extend_from_slice(bytes);
            }
            Err(why) => self.lose_input(why),
        }
    }

    /// More of an answer that is one document.
    pub(crate) fn document(&mut self, bytes: &[u8]) {
        if self.room(bytes.len()) {
            self.document.extend_from_slice(bytes);
        }
    }

    /// A message of a streamed answer.
    pub(crate) fn event(&mut self, event: SseEvent<'_>) {
        if self.lost_out.is_none() {
            let protocol = self.protocol;
            if !protocol.said(event, &mut |said| self.said(&said)) {
                self.lose_output(Absent::Unreadable);
            }
        }
    }

    fn said(&mut self, said: &Said<'_>) {
        if !self.room(said.text.len()) {
            return;
        }
        let at = match self.choices.iter().position(|choice| choice.index == said.choice) {
            Some(at) => at,
            None if self.choices.len() >= MAX_CHOICES => return self.lose_output(Absent::TooLarge),
            None => {
                if !self.room(size_of::<Choice>()) {
                    return;
                }
                self.choices.push(Choice {
                    index: said.choice,
                    ..Choice::default()
                });
                self.choices.len() - 1
            }
        };
        let Some(choice) = self.choices.get_mut(at) else {
            return;
        };
        match said.kind {
            SaidKind::Text => choice.text.push_str(&said.text),
            SaidKind::Reasoning => choice.reasoning.push_str(&said.text),
            SaidKind::CallName(index) | SaidKind::CallArguments(index) => {
                let known = choice.calls.iter().position(|call| call.index == index);
                if known.is_none() && choice.calls.len() >= MAX_CALLS {
                    return self.lose_output(Absent::TooLarge);
                }
                if known.is_none() && !self.room(size_of::<Call>()) {
                    return;
                }
                let Some(choice) = self.choices.get_mut(at) else {
                    return;
                };
                let at = known.unwrap_or_else(|| {
                    choice.calls.push(Call {
                        index,
                        ..Call::default()
                    });
                    choice.calls.len() - 1
                });
                if let Some(call) = choice.calls.get_mut(at) {
                    match said.kind {
                        SaidKind::CallName(_) => call.name.push_str(&said.text),
                        _ => call.arguments.push_str(&said.text),
                    }
                }
            }
        }
    }

    /// The prompt can't be kept.
    pub(crate) fn lose_input(&mut self, why: Absent) {
        self.lost_in = self.lost_in.or(Some(why));
        self.request = Vec::new();
        self.give_back(self.used_in);
        self.used_in = 0;
    }

    /// The answer can't be kept.
    pub(crate) fn lose_output(&mut self, why: Absent) {
        self.lost_out = self.lost_out.or(Some(why));
        self.document = Vec::new();
        self.choices = Vec::new();
        self.give_back(self.used_out);
        self.used_out = 0;
    }

    /// Whether there is room for so many more bytes of the answer, which then is theirs.
    fn room(&mut self, bytes: usize) -> bool {
        if self.lost_out.is_some() {
            return false;
        }
        match self.reserve(self.used_out, bytes) {
            Ok(()) => {
                self.used_out += bytes;
                true
            }
            Err(why) => {
                self.lose_output(why);
                false
            }
        }
    }

    fn reserve(&mut self, used: usize, bytes: usize) -> Result<(), Absent> {
        if used.saturating_add(bytes) > self.limits.one {
            return Err(Absent::TooLarge);
        }
        let all = self.used_in + self.used_out + bytes;
        if all > self.taken {
            let more = (all - self.taken).next_multiple_of(STEP);
            if !self.budget.take(more, self.limits.all) {
                return Err(Absent::NoMemory);
            }
            self.taken += more;
        }
        Ok(())
    }

    fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.taken) / STEP * STEP;
        self.taken -= bytes;
        self.budget.give_back(bytes);
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.budget.give_back(self.taken);
    }
}

/// Never the text: what is printed for debugging ends in logs.
impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Heard({} bytes in, {} out)", self.used_in, self.used_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{content::Mode, protocol::OpenAiChat};

    const LIMITS: HeardLimits = HeardLimits {
        one: 64 * 1024,
        all: 100 * 1024,
    };

    #[test]
    fn what_is_held_is_bounded_and_given_back() {
        let budget = Budget::default();
        let mut first = Heard::new(&OpenAiChat, &budget, &Arc::default(), LIMITS);
        first.request_data(&[b'x'; 60 * 1024]);
        assert_eq!((first.bytes(), budget.used()), (60 * 1024, 64 * 1024));
        let mut second = Heard::new(&OpenAiChat, &budget, &Arc::default(), LIMITS);
        second.request_data(&[b'x'; 40 * 1024]);
        assert_eq!(second.lost_in, Some(Absent::NoMemory));
        second.document(&[b'x'; 10]);
        assert_eq!(
            (second.lost_out, second.document.len()),
            (None, 10),
            "one side is enough"
        );
        first.request_data(&[b'x'; 5 * 1024]);
        assert_eq!(first.lost_in, Some(Absent::TooLarge));
        assert!(first.request.is_empty());
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_is_kept_is_what_both_rules_allow() {
        let keep = |mode, max_bytes| Keep { mode, max_bytes };
        let rules = Arc::new(ContentRules {
            scenes: vec![("private".into(), keep(Mode::None, 10))],
            others: keep(Mode::Redacted, 100),
        });
        let heard = Heard::new(&OpenAiChat, &Budget::default(), &rules, LIMITS);
        for (scene, now, expected) in [
            ("chat", keep(Mode::Full, 1000), keep(Mode::Redacted, 100)),
            ("chat", keep(Mode::Hash, 50), keep(Mode::Hash, 50)),
            ("chat", keep(Mode::None, 50), keep(Mode::None, 50)),
            ("private", keep(Mode::Full, 1000), keep(Mode::None, 10)),
        ] {
            assert_eq!(heard.keep(scene, now), expected, "{scene} {now:?}");
        }
    }

    #[test]
    fn a_streamed_answer_is_put_together() {
        let mut heard = Heard::new(&OpenAiChat, &Budget::default(), &Arc::default(), LIMITS);
        for data in [
            r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"al"}},{"index":1,"delta":{"content":"x"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"ice@"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{\"a\""}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":null}"#,
            r#"{"usage":{"prompt_tokens":1}}"#,
            "",
            " [DONE]",
        ] {
            heard.event(SseEvent {
                name: b"",
                data: data.as_bytes(),
            });
        }
        assert_eq!(heard.choices.len(), 2);
        let first = &heard.choices[0];
        assert_eq!((&*first.reasoning, &*first.text), ("hm", "alice@"));
        assert_eq!(
            (&*first.calls[0].name, &*first.calls[0].arguments),
            ("f", r#"{"a":1}"#)
        );
        assert_eq!(heard.choices[1].text, "x");
        assert_eq!(heard.lost_out, None);
    }

    #[test]
    fn an_answer_with_a_piece_that_can_not_be_read_is_lost() {
        for piece in [
            "not JSON",
            r#"{"choices":[{"index":0,"delta":{"content":"\ud83d"}}]}"#,
            r#"{"choices":7}"#,
            r#"{"choices":[{"index":0,"delta":{"content":[{"type":"text","text":"x"}]}}]}"#,
            r#"{"choices":[{"index":0,"text":{"x":1}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":"f"}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":{"a":1}}}]}}]}"#,
            &format!("{{\"choices\":[{}{{}}]}}", "{},".repeat(10_000)),
        ] {
            let budget = Budget::default();
            let mut heard = Heard::new(&OpenAiChat, &budget, &Arc::default(), LIMITS);
            for data in [
                r#"{"choices":[{"index":0,"delta":{"content":"a"}}]}"#,
                piece,
                r#"{"choices":[{"index":0,"delta":{"content":"b"}}]}"#,
            ] {
                heard.event(SseEvent {
                    name: b"",
                    data: data.as_bytes(),
                });
            }
            assert_eq!(heard.lost_out, Some(Absent::Unreadable), "{piece}");
            assert!(heard.choices.is_empty(), "{piece}");
            drop(heard);
            assert_eq!(budget.used(), 0);
        }
    }
}
