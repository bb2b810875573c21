//! What a pickle holds: values, and the containers that they refer to.
//!
//! Owns: the arena, its bounds, looking things up in it. Refuses: opcodes (`machine`), and walking values deeper than
//! it is asked to: containers may hold themselves.

/// Containers kept of one pickle; a further one is opaque.
const MAX_NODES: usize = 64 * 1024;
/// Values kept in one container, or pairs; further ones are only counted.
const MAX_ITEMS: usize = 4096;
/// Values kept in all containers together.
const MAX_KEPT: usize = 128 * 1024;

/// One value. What it refers to is looked up in its [`super::Pickle`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer within 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// Text.
    Str(&'a str),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A container, an object, or the name of a class or function.
    Node(NodeId),
    /// What is not kept: larger integers, text that is not UTF-8, buffers out of band, extensions, what is beyond the
    /// bounds.
    Opaque,
}

/// A place in the arena of one pickle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeId(u32);

/// A container or an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Node<'a> {
    /// A list, tuple or set: its first values, and how many it has.
    Items(Vec<Value<'a>>, u64),
    /// A dict: its first pairs.
    Pairs(Vec<(Value<'a>, Value<'a>)>),
    /// A class or function, by name. It is never looked up.
    Name {
        /// Module.
        module: &'a str,
        /// Name within it.
        name: &'a str,
    },
    /// What a call of `callable` with `args` would give, and the state that it would be given then. Nothing is called.
    Object {
        /// What would be called, or the class.
        callable: Value<'a>,
        /// With which arguments: a tuple.
        args: Value<'a>,
        /// Its state; [`Value::None`] when none was set.
        state: Value<'a>,
    },
}

/// The nodes of one pickle.
#[derive(Debug, Default)]
pub(super) struct Arena<'a> {
    nodes: Vec<Node<'a>>,
    kept: usize,
}

impl<'a> Arena<'a> {
    pub(super) fn node(&self, value: Value<'a>) -> Option<&Node<'a>> {
        match value {
            Value::Node(NodeId(id)) => self.nodes.get(id as usize),
            _ => None,
        }
    }

    fn node_mut(&mut self, value: Value<'a>) -> Option<&mut Node<'a>> {
        match value {
            Value::Node(NodeId(id)) => self.nodes.get_mut(id as usize),
            _ => None,
        }
    }

    pub(super) fn add(&mut self, node: Node<'a>) -> Value<'a> {
        if self.nodes.len() >= MAX_NODES {
            return Value::Opaque;
        }
        self.nodes.push(node);
        Value::Node(NodeId((self.nodes.len() - 1) as u32))
    }

    pub(super) fn add_items(&mut self, items: &[Value<'a>]) -> Value<'a> {
        let list = self.add(Node::Items(Vec::new(), 0));
        self.extend(list, items);
        list
    }

    /// Puts values at the end of a list or set.
    pub(super) fn extend(&mut self, list: Value<'a>, values: &[Value<'a>]) {
        let room = MAX_KEPT - self.kept;
        let Some(Node::Items(items, len)) = self.node_mut(list) else {
            return;
        };
        *len = len.saturating_add(values.len() as u64);
        let keep = values.len().min(MAX_ITEMS - items.len()).min(room);
        items.extend_from_slice(&values[..keep]);
        self.kept += keep;
    }

    /// Puts keys and values, in turns, into a dict.
    pub(super) fn insert(&mut self, dict: Value<'a>, values: &[Value<'a>]) {
        let room = (MAX_KEPT - self.kept) / 2;
        let Some(Node::Pairs(pairs)) = self.node_mut(dict) else {
            return;
        };
        let keep = (values.len() / 2).min(MAX_ITEMS - pairs.len()).min(room);
        pairs.extend(values.chunks_exact(2).take(keep).map(|pair| (pair[0], pair[1])));
        self.kept += 2 * keep;
    }

    /// Gives an object its state.
    pub(super) fn build(&mut self, object: Value<'a>, given: Value<'a>) {
        if let Some(Node::Object { state, .. }) = self.node_mut(object) {
            *state = given;
        }
    }
}
