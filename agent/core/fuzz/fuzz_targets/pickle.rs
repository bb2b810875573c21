//! Pickles: nothing panics, memory is bounded, and a pickle without its end tells no more than with it.
#![no_main]

use infertap_core::wire::pickle::{Pickle, Value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(pickle) = Pickle::read(input) else { return };
    let Some(root) = pickle.root() else {
        let (below, within) = pickle.broken();
        assert!(below.len() + within.len() <= input.len());
        return;
    };
    assert!(pickle.rest().len() < input.len());
    let read = input.len() - pickle.rest().len();
    // The same bytes without what follows them are the same pickle; without their last one, they have no end.
    let again = Pickle::read(&input[..read]).expect("the same bytes");
    assert!(again.root().is_some() && again.rest().is_empty());
    let cut = Pickle::read(&input[..read - 1]).expect("all but its last byte");
    assert!(cut.root().is_none());
    if let Some((items, len)) = pickle.items(root) {
        assert!(items.len() as u64 <= len && len <= input.len() as u64);
    }
    if let Value::Str(text) = root {
        assert!(text.len() <= input.len());
    }
});
