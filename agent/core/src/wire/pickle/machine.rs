//! The opcodes of protocols 2 to 5, run on a stack of values.
//!
//! Owns: their arguments, the stack, its marks and the memo, and their bounds. Refuses: calling, importing, or looking
//! up anything; the text opcodes of protocols 0 and 1.

use super::{
    PickleError,
    value::{Arena, Node, Value},
};

/// Values on the stack at once; Python's own pickler puts at most a thousand of a list there, but a tuple whole.
const MAX_STACK: usize = 64 * 1024;
/// Values that are remembered; one beyond it is opaque when it is asked for.
const MAX_MEMO: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Machine<'a> {
    rest: &'a [u8],
    pub(super) arena: Arena<'a>,
    pub(super) stack: Vec<Value<'a>>,
    /// Heights of the stack at its marks.
    pub(super) marks: Vec<usize>,
    memo: Vec<Value<'a>>,
    memoized: u64,
}

/// What an opcode leads to.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Go,
    Stop,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Machine<'a> {
        Machine {
            rest: bytes,
            arena: Arena::default(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
            memoized: 0,
        }
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Runs one opcode. One that fails for want of bytes has changed nothing but what is left of them.
    pub(super) fn step(&mut self) -> Result<Next, PickleError> {
        let opcode = self.take(1)?[0];
        match opcode {
            0x80 => {
                let version = self.take(1)?[0];
                if version > 5 {
                    return Err(PickleError::Protocol(version));
                }
            }
            // FRAME: only says how much to read at once.
            0x95 => {
                self.number(8)?;
            }
            b'.' => return Ok(Next::Stop),
            b'(' => {
                if self.marks.len() >= MAX_STACK {
                    return Err(PickleError::TooLarge);
                }
                self.marks.push(self.stack.len());
            }
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                let mark = self.mark()?;
                self.stack.truncate(mark);
            }
            b'2' => {
                let top = self.top()?;
                self.push(top)?;
            }
            b'q' | b'r' => {
                let index = self.number(if opcode == b'q' { 1 } else { 4 })?;
                self.put(index)?;
            }
            0x94 => self.put(self.memoized)?,
            b'h' | b'j' => {
                let index = self.number(if opcode == b'h' { 1 } else { 4 })?;
                let value = self.get(index)?;
                self.push(value)?;
            }
            _ => self.value(opcode)?,
        }
        Ok(Next::Go)
    }

    fn value(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(self.number(1)?.cast_signed()),
            b'M' => Value::Int(self.number(2)?.cast_signed()),
            b'J' => Value::Int(i64::from((self.number(4)? as u32).cast_signed())),
            0x8a | 0x8b => {
                let len = self.number(if opcode == 0x8a { 1 } else { 4 })?;
                long(self.take(len)?)
            }
            b'G' => {
                let bytes = self.take(8)?;
                bytes
                    .first_chunk::<8>()
                    .map_or(Value::Opaque, |bytes| Value::Float(f64::from_be_bytes(*bytes)))
            }
            0x8c | b'X' | 0x8d => {
                let bytes = self.sized(match opcode {
                    0x8c => 1,
                    b'X' => 4,
                    _ => 8,
                })?;
                std::str::from_utf8(bytes).map_or(Value::Opaque, Value::Str)
            }
            b'C' | b'U' | b'B' | b'T' | 0x8e | 0x96 => Value::Bytes(self.sized(match opcode {
                b'C' | b'U' => 1,
                b'B' | b'T' => 4,
                _ => 8,
            })?),
            // A buffer out of band, an extension's code.
            0x97 => Value::Opaque,
            0x82..=0x84 => {
                self.number([1, 2, 4][usize::from(opcode - 0x82)])?;
                Value::Opaque
            }
            _ => return self.container(opcode),
        };
        self.push(value)
    }

    fn container(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b']' | b')' | 0x8f => {
                let list = self.arena.add_items(&[]);
                self.push(list)
            }
            b'}' => {
                let dict = self.arena.add(Node::Pairs(Vec::new()));
                self.push(dict)
            }
            0x85..=0x87 => self.fold(usize::from(opcode - 0x84)),
            b't' | b'l' | 0x91 => {
                let mark = self.mark()?;
                self.fold(self.stack.len() - mark)
            }
            b'd' => {
                let mark = self.mark()?;
                let dict = self.arena.add(Node::Pairs(Vec::new()));
                self.arena.insert(dict, &self.stack[mark..]);
                self.stack.truncate(mark);
                self.push(dict)
            }
            b'a' | b'e' | 0x90 => {
                let from = if opcode == b'a' {
                    self.below(1)?
                } else {
                    self.mark()?
                };
                let list = self.before(from)?;
                self.arena.extend(list, &self.stack[from..]);
                self.stack.truncate(from);
                Ok(())
            }
            b's' | b'u' => {
                let from = if opcode == b's' {
                    self.below(2)?
                } else {
                    self.mark()?
                };
                let dict = self.before(from)?;
                self.arena.insert(dict, &self.stack[from..]);
                self.stack.truncate(from);
                Ok(())
            }
            _ => self.object(opcode),
        }
    }

    fn object(&mut self, opcode: u8) -> Result<(), PickleError> {
        match opcode {
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                let name = self.arena.add(Node::Name { module, name });
                self.push(name)
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let value = match (module, name) {
                    (Value::Str(module), Value::Str(name)) => self.arena.add(Node::Name { module, name }),
                    _ => Value::Opaque,
                };
                self.push(value)
            }
            // REDUCE, NEWOBJ; NEWOBJ_EX has keyword arguments, which are told as the state.
            b'R' | 0x81 | 0x92 => {
                let state = if opcode == 0x92 { self.pop()? } else { Value::None };
                let (args, callable) = (self.pop()?, self.pop()?);
                let object = self.arena.add(Node::Object {
                    callable,
                    args,
                    state,
                });
                self.push(object)
            }
            b'b' => {
                let state = self.pop()?;
                let object = self.top()?;
                self.arena.build(object, state);
                Ok(())
            }
            // A persistent id; a buffer that is read-only.
            b'Q' => {
                self.pop()?;
                self.push(Value::Opaque)
            }
            0x98 => self.top().map(|_| ()),
            other => Err(PickleError::Opcode(other)),
        }
    }

    /// Makes the last `count` values a tuple.
    fn fold(&mut self, count: usize) -> Result<(), PickleError> {
        let from = self.below(count)?;
        let tuple = self.arena.add_items(&self.stack[from..]);
        self.stack.truncate(from);
        self.push(tuple)
    }

    /// Where the last `count` values begin. None of them is under a mark.
    fn below(&self, count: usize) -> Result<usize, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let from = self.stack.len().checked_sub(count);
        from.filter(|from| *from >= floor).ok_or(PickleError::Stack)
    }

    /// The value under `from`, which is what the values from there on are put into.
    fn before(&self, from: usize) -> Result<Value<'a>, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let at = from.checked_sub(1).filter(|at| *at >= floor);
        at.and_then(|at| self.stack.get(at).copied())
            .ok_or(PickleError::Stack)
    }

    fn mark(&mut self) -> Result<usize, PickleError> {
        self.marks.pop().ok_or(PickleError::Stack)
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), PickleError> {
        if self.stack.len() >= MAX_STACK {
            return Err(PickleError::TooLarge);
        }
        self.stack.push(value);
        Ok(())
    }

    fn top(&self) -> Result<Value<'a>, PickleError> {
        self.stack.get(self.below(1)?).copied().ok_or(PickleError::Stack)
    }

    fn pop(&mut self) -> Result<Value<'a>, PickleError> {
        self.below(1)?;
        self.stack.pop().ok_or(PickleError::Stack)
    }

    /// Python's pickler numbers what it remembers without gaps.
    fn put(&mut self, index: u64) -> Result<(), PickleError> {
        let value = self.top()?;
        if index > self.memoized {
            return Err(PickleError::Memo);
        }
        if index == self.memoized {
            self.memoized += 1;
        }
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        match self.memo.get_mut(index) {
            Some(slot) => *slot = value,
            None if index < MAX_MEMO => self.memo.push(value),
            None => {}
        }
        Ok(())
    }

    fn get(&self, index: u64) -> Result<Value<'a>, PickleError> {
        if index >= self.memoized {
            return Err(PickleError::Memo);
        }
        let slot = usize::try_from(index).ok().and_then(|index| self.memo.get(index));
        Ok(slot.copied().unwrap_or(Value::Opaque))
    }

    fn sized(&mut self, width: u64) -> Result<&'a [u8], PickleError> {
        let len = self.number(width)?;
        self.take(len)
    }

    fn number(&mut self, width: u64) -> Result<u64, PickleError> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn line(&mut self) -> Result<&'a str, PickleError> {
        let end = self
            .rest
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or(PickleError::Truncated)?;
        let line = self.take(end as u64)?;
        self.take(1)?;
        std::str::from_utf8(line).map_err(|_| PickleError::Opcode(b'c'))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], PickleError> {
        let len = usize::try_from(len).map_err(|_| PickleError::Truncated)?;
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(PickleError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Little-endian two's complement of any length.
fn long(bytes: &[u8]) -> Value<'static> {
    let Some(last) = bytes.last() else {
        return Value::Int(0);
    };
    if bytes.len() > 8 {
        return Value::Opaque;
    }
    let mut wide = [if last & 0x80 == 0 { 0 } else { 0xff }; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    Value::Int(i64::from_le_bytes(wide))
}
