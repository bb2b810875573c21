//! Opcodes, bounds, and hostile bytes.

use super::*;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Pickle<'_> {
    Pickle::read(bytes).expect("a pickle")
}

fn root<'a>(pickle: &Pickle<'a>) -> Value<'a> {
    pickle.root().expect("whole")
}

#[test]
fn scalars_of_every_width_are_read() {
    for (bytes, expected) in [
        (&b"\x80\x04N."[..], Value::None),
        (b"\x80\x04\x88.", Value::Bool(true)),
        (b"\x80\x04\x89.", Value::Bool(false)),
        (b"\x80\x04K\xff.", Value::Int(255)),
        (b"\x80\x04M\x00\x01.", Value::Int(256)),
        (b"\x80\x04J\xff\xff\xff\xff.", Value::Int(-1)),
        (b"\x80\x04\x8a\x00.", Value::Int(0)),
        (b"\x80\x04\x8a\x01\xff.", Value::Int(-1)),
        (b"\x80\x04\x8a\x05\x00\x00\x00\x00\x01.", Value::Int(1 << 32)),
        (
            b"\x80\x04\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.",
            Value::Opaque,
        ),
        (b"\x80\x04G\x3f\xd0\x00\x00\x00\x00\x00\x00.", Value::Float(0.25)),
        (b"\x80\x04\x8c\x02hi.", Value::Str("hi")),
        (b"\x80\x04X\x02\x00\x00\x00hi.", Value::Str("hi")),
        (
            b"\x80\x04\x8d\x02\x00\x00\x00\x00\x00\x00\x00hi.",
            Value::Str("hi"),
        ),
        (b"\x80\x04\x8c\x01\xff.", Value::Opaque),
        (b"\x80\x04C\x02\x01\x02.", Value::Bytes(&[1, 2])),
        (
            b"\x80\x05\x96\x01\x00\x00\x00\x00\x00\x00\x00\x07.",
            Value::Bytes(&[7]),
        ),
        (b"\x80\x05\x97\x98.", Value::Opaque),
    ] {
        assert_eq!(root(&read(bytes)), expected, "{bytes:02x?}");
    }
}

#[test]
fn containers_are_referred_to() {
    // {"a": [1, 2], "b": ("x",)}, framed and remembered as Python does it.
    let bytes = b"\x80\x04\x95\x1e\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01K\x02e\x8c\x01b\x94\x8c\x01x\x94\x85\x94u.";
    let pickle = read(bytes);
    let dict = root(&pickle);
    let list = pickle.get(dict, "a").expect("a list");
    assert_eq!(pickle.items(list), Some((&[Value::Int(1), Value::Int(2)][..], 2)));
    let tuple = pickle.get(dict, "b").expect("a tuple");
    assert_eq!(pickle.items(tuple), Some((&[Value::Str("x")][..], 1)));
    assert_eq!(pickle.get(dict, "c"), None);
    assert!(pickle.rest().is_empty());
}

#[test]
fn nothing_is_called() {
    // os.system("true"), as an attacker would write it.
    let pickle = read(b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.");
    let Some(Node::Object {
        callable,
        args,
        state,
    }) = pickle.node(root(&pickle))
    else {
        panic!("an object");
    };
    assert_eq!(pickle.name(*callable), Some(("posix", "system")));
    assert_eq!(pickle.items(*args), Some((&[Value::Str("true")][..], 1)));
    assert_eq!(*state, Value::None);
    let older = read(b"\x80\x02cposix\nsystem\n)\x81}b.");
    assert!(matches!(
        older.node(root(&older)),
        Some(Node::Object {
            state: Value::Node(_),
            ..
        })
    ));
}

#[test]
fn what_was_being_made_is_told_of_a_cut_pickle() {
    let whole = b"\x80\x04}(\x8c\x01aK\x01\x8c\x01b](K\x05K\x06eu.";
    let pickle = read(&whole[..18]);
    assert_eq!(pickle.root(), None);
    let (below, within) = pickle.broken();
    assert_eq!(below.len(), 1);
    assert_eq!(within[..3], [Value::Str("a"), Value::Int(1), Value::Str("b")]);
}

#[test]
fn broken_pickles_are_refused() {
    for (bytes, expected) in [
        (&b"\x80\x06N."[..], PickleError::Protocol(6)),
        (b"I1\n.", PickleError::Opcode(b'I')),
        (b".", PickleError::Stack),
        (b"0", PickleError::Stack),
        (b"N(0", PickleError::Stack),
        (b"e", PickleError::Stack),
        (b"h\x00", PickleError::Memo),
        (b"Nq\x05", PickleError::Memo),
        (b"\x94", PickleError::Stack),
    ] {
        assert_eq!(Pickle::read(bytes).err(), Some(expected), "{bytes:02x?}");
    }
    assert!(Pickle::read(&b"(".repeat(100_000)).is_err());
    assert!(Pickle::read(&b"N".repeat(100_000)).is_err());
    // Lengths beyond the bytes are an end that is missing.
    assert_eq!(read(b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff").root(), None);
}

#[test]
fn bombs_cost_no_more_than_their_bytes() {
    // Each list holds the one before it ten times; walking it would take forever.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for level in 0..200_u8 {
        bytes.extend_from_slice(b"](");
        for _ in 0..10 {
            bytes.extend_from_slice(&[b'h', level]);
        }
        bytes.extend_from_slice(b"e\x94");
    }
    bytes.push(b'.');
    let pickle = read(&bytes);
    assert_eq!(pickle.items(root(&pickle)).map(|(_, len)| len), Some(10));
    // A list that holds itself, and nesting as deep as the bytes.
    assert!(read(b"]\x94h\x00a.").root().is_some());
    assert!(
        read(&[b"]".repeat(60_000), b"a".repeat(59_999), b".".to_vec()].concat())
            .root()
            .is_some()
    );
    // More containers than are kept, and more values.
    let many = [b"](".to_vec(), b"]0".repeat(100_000), b"]e.".to_vec()].concat();
    let pickle = read(&many);
    assert_eq!(pickle.items(root(&pickle)), Some((&[Value::Opaque][..], 1)));
    let batch = [b"(".to_vec(), b"N".repeat(1000), b"e".to_vec()].concat();
    let long = [b"]".to_vec(), batch.repeat(200), b".".to_vec()].concat();
    let pickle = read(&long);
    let (items, len) = pickle.items(root(&pickle)).expect("a list");
    assert!(len == 200_000 && items.len() < 5000);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(pickle) = Pickle::read(&bytes) {
            let _ = pickle.broken();
            prop_assert!(pickle.rest().len() <= bytes.len());
        }
    }

    #[test]
    fn any_opcodes_are_read_or_refused(
        opcodes in proptest::collection::vec(proptest::sample::select(b"N(0)]}etausRb\x81\x85\x93\x94h\x00K\x8c\x01x.".to_vec()), 0..300),
    ) {
        if let Ok(pickle) = Pickle::read(&opcodes) {
            let _ = pickle.broken();
        }
    }
}
