//! One request's tasks, and what is believed of them when its exchange has ended.
//!
//! Owns: what is certain where there are several tasks. Refuses: finding the tasks (`slots`).

use crate::{Nanos, event::ConnId, inside::Told, timeline::Gaps};
use std::collections::HashMap;

/// One request: what its tasks did.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) made: Nanos,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) tasks: Vec<Task>,
    pub(super) gaps: Gaps,
    /// It has more tasks than are followed.
    pub(super) lossy: bool,
}

#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: u32,
    pub(super) launched: bool,
    pub(super) scheduled: Option<Nanos>,
    pub(super) first_token: Option<Nanos>,
    pub(super) last_token: Option<Nanos>,
    pub(super) tokens: u64,
    pub(super) computed: Option<u64>,
}

pub(super) fn task_of(requests: &mut HashMap<ConnId, Request>, key: (ConnId, u32)) -> Option<&mut Task> {
    let request = requests.get_mut(&key.0)?;
    request.tasks.iter_mut().find(|task| task.id == key.1)
}

impl Request {
    /// Prompt tokens, where all that was tokenized is the one prompt.
    pub(super) fn prompt_of_one(&self) -> Option<u64> {
        self.prompt_tokens.filter(|_| self.tasks.len() == 1)
    }

    pub(super) fn told(&self) -> Told {
        let prompt = self.prompt_of_one();
        let computed = match self.tasks.as_slice() {
            [task] => task.computed,
            _ => None,
        };
        let all = !self.lossy && self.tasks.iter().all(|task| task.launched);
        Told {
            shared: None,
            scheduled: self.tasks.iter().filter_map(|task| task.scheduled).min(),
            first_token: self
                .tasks
                .iter()
                .filter_map(|task| task.first_token)
                .min()
                .filter(|_| all),
            last_token: self
                .tasks
                .iter()
                .filter_map(|task| task.last_token)
                .max()
                .filter(|_| all),
            input_tokens: prompt,
            cached_tokens: prompt
                .zip(computed)
                .and_then(|(prompt, computed)| prompt.checked_sub(computed)),
            output_tokens: all.then(|| self.tasks.iter().map(|task| task.tokens).sum()),
            reasoning_tokens: None,
            requests: self.tasks.len() as u64,
            gaps: if all { self.gaps.seconds() } else { Vec::new() },
        }
    }
}
