//! Python pickles, read as data.
//!
//! Owns: one pickle's values within fixed bounds, also of one whose end is missing. Refuses: executing: what a pickle
//! would import or call is told by its name and nothing else happens; protocols 0 and 1, which no program has written by
//! itself since Python 3.
//!
//! Nothing here recurses, and a value that is remembered and used again is referred to, not copied: neither nesting nor
//! a memo bomb costs more than its bytes.

mod machine;
#[cfg(test)]
mod tests;
mod value;

use machine::{Machine, Next};
pub use value::{Node, NodeId, Value};

/// Why bytes are no pickle that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// The bytes end within the pickle.
    #[error("the pickle's end is missing")]
    Truncated,
    /// A protocol that is not known.
    #[error("pickle protocol {0} is not known")]
    Protocol(u8),
    /// An opcode that is not read here.
    #[error("opcode {0:#04x} is not read here")]
    Opcode(u8),
    /// An opcode found less on the stack than it takes.
    #[error("an opcode found too little on the stack")]
    Stack,
    /// A value that nobody remembered.
    #[error("a value was asked for that was never remembered")]
    Memo,
    /// More values at once than any message has.
    #[error("too many values on the stack")]
    TooLarge,
}

/// One pickle.
#[derive(Debug)]
pub struct Pickle<'a> {
    machine: Machine<'a>,
    root: Option<Value<'a>>,
}

impl<'a> Pickle<'a> {
    /// Reads a pickle, which may lack its end.
    pub fn read(bytes: &'a [u8]) -> Result<Pickle<'a>, PickleError> {
        let mut machine = Machine::new(bytes);
        loop {
            match machine.step() {
                Ok(Next::Go) => {}
                Ok(Next::Stop) => {
                    let root = machine.stack.last().copied().ok_or(PickleError::Stack)?;
                    return Ok(Pickle {
                        machine,
                        root: Some(root),
                    });
                }
                Err(PickleError::Truncated) => return Ok(Pickle { machine, root: None }),
                Err(error) => return Err(error),
            }
        }
    }

    /// What it holds; `None` when its end is missing.
    pub fn root(&self) -> Option<Value<'a>> {
        self.root
    }

    /// Bytes behind its end.
    pub fn rest(&self) -> &'a [u8] {
        self.machine.rest()
    }

    /// What a value refers to.
    pub fn node(&self, value: Value<'a>) -> Option<&Node<'a>> {
        self.machine.arena.node(value)
    }

    /// The first values of a list, tuple or set, and how many it has.
    pub fn items(&self, value: Value<'a>) -> Option<(&[Value<'a>], u64)> {
        match self.node(value)? {
            Node::Items(items, len) => Some((items, *len)),
            _ => None,
        }
    }

    /// The first pairs of a dict.
    pub fn pairs(&self, value: Value<'a>) -> Option<&[(Value<'a>, Value<'a>)]> {
        match self.node(value)? {
            Node::Pairs(pairs) => Some(pairs),
            _ => None,
        }
    }

    /// Module and name of a class or function.
    pub fn name(&self, value: Value<'a>) -> Option<(&'a str, &'a str)> {
        match self.node(value)? {
            Node::Name { module, name } => Some((module, name)),
            _ => None,
        }
    }

    /// What a key of a dict has.
    pub fn get(&self, dict: Value<'a>, key: &str) -> Option<Value<'a>> {
        let pairs = self.pairs(dict)?;
        pairs
            .iter()
            .rev()
            .find(|(k, _)| *k == Value::Str(key))
            .map(|pair| pair.1)
    }

    /// Of a pickle whose end is missing: what was being made when it broke off. The values under the first mark, and
    /// those between it and the next one or the end. The last of those may not be complete.
    pub fn broken(&self) -> (&[Value<'a>], &[Value<'a>]) {
        let Machine { stack, marks, .. } = &self.machine;
        let first = marks.first().copied().unwrap_or(stack.len());
        let second = marks.get(1).copied().unwrap_or(stack.len());
        (
            stack.get(..first).unwrap_or_default(),
            stack.get(first..second).unwrap_or_default(),
        )
    }
}
