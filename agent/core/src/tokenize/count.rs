//! How many tokens a call gave, read from what it returned: where the layout can be trusted.
//!
//! Owns: the checks that make a layout trusted. Refuses: a number that fails one of them; it is `None` then.

/// Tokens of one text. A context is at most some millions.
const MAX_TOKENS: u64 = 1 << 26;
/// Vectors of an `Encoding` that have one entry a token: ids, type ids, tokens, words, offsets and two masks.
const PARALLEL: usize = 7;
/// Words of a vector: capacity and pointer in either order, as the compiler likes, then the length.
const VEC_WORDS: usize = 3;

/// `llama_tokenize` returns the count, or minus the count when the caller's buffer has no room for it.
pub(super) fn tokens_returned(register: u64) -> Option<u64> {
    u64::try_from(register as u32 as i32)
        .ok()
        .filter(|tokens| *tokens <= MAX_TOKENS)
}

/// Tokens of a `tokenizers::Encoding`, from the memory of it (which also holds the `Result` around it). No layout is
/// promised; seven vectors of one length in a row are in nothing else.
pub(super) fn encoding_tokens(memory: &[u8]) -> Option<u64> {
    let words = words(memory);
    let mut found = words.windows(PARALLEL * VEC_WORDS).filter_map(|words| {
        let (vectors, _) = words.as_chunks::<VEC_WORDS>();
        let tokens = vector_length(vectors.first()?)?;
        vectors
            .iter()
            .all(|vector| vector_length(vector) == Some(tokens))
            .then_some(tokens)
    });
    let tokens = found.next()?;
    found.all(|other| other == tokens).then_some(tokens)
}

/// Tokens of a `Vec<u32>`, alone or as the first part of a pair, from the memory of it.
pub(super) fn vector_tokens(memory: &[u8]) -> Option<u64> {
    let words = words(memory);
    let (vector, _) = words.split_first_chunk::<VEC_WORDS>()?;
    vector_length(vector)
}

fn words(memory: &[u8]) -> Vec<u64> {
    memory
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .collect()
}

/// The length of what can be a vector: it fits its capacity, and the pointer is one (aligned and not null, also where
/// nothing is allocated).
fn vector_length(&[first, second, length]: &[u64; VEC_WORDS]) -> Option<u64> {
    let is = |capacity: u64, pointer: u64| {
        let allocated = pointer > u64::from(u32::MAX) && pointer >> 47 == 0;
        length <= capacity
            && capacity <= MAX_TOKENS
            && if capacity == 0 {
                (1..=16).contains(&pointer)
            } else {
                allocated
            }
    };
    (is(first, second) || is(second, first)).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAP: u64 = 0x7f12_3456_7890;

    fn memory(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// As of `tokenizers` 0.20 on: capacity, pointer, length; then the overflowing encodings and a hash map.
    fn encoding(tokens: u64) -> Vec<u64> {
        let mut words: Vec<u64> = (0..7)
            .flat_map(|i| [tokens + i % 2, HEAP + i * 4096, tokens])
            .collect();
        words.extend([0, 8, 0]);
        words.extend([HEAP, 0, 0, 0, 1, 2, 3, 4]);
        words
    }

    #[test]
    fn an_encoding_is_known_by_its_parallel_vectors() {
        assert_eq!(encoding_tokens(&memory(&encoding(38))), Some(38));
        // Behind a discriminant, and with pointer and capacity the other way round.
        let behind: Vec<u64> = [0].into_iter().chain(encoding(5)).collect();
        assert_eq!(encoding_tokens(&memory(&behind)), Some(5));
        let mut swapped = encoding(9);
        for vector in swapped.as_chunks_mut::<3>().0 {
            vector.swap(0, 1);
        }
        assert_eq!(encoding_tokens(&memory(&swapped)), Some(9));
        // Nothing was encoded: nothing is allocated.
        let empty: Vec<u64> = (0..7).flat_map(|_| [0, 4, 0]).collect();
        assert_eq!(encoding_tokens(&memory(&empty)), Some(0));
    }

    #[test]
    fn what_is_no_encoding_has_no_count() {
        let error: Vec<u64> = [1 << 63, HEAP, HEAP].into_iter().chain([0; 29]).collect();
        let mut uneven = encoding(38);
        uneven[14] = 37;
        let mut beyond = encoding(38);
        beyond[0] = 37;
        let mut null = encoding(38);
        null[4] = 0;
        for words in [
            error,
            uneven,
            beyond,
            null,
            vec![0; 32],
            vec![u64::MAX; 32],
            vec![],
            encoding(1 << 27),
        ] {
            assert_eq!(encoding_tokens(&memory(&words)), None, "{words:x?}");
        }
        assert_eq!(encoding_tokens(&memory(&encoding(38))[..160]), None, "cut short");
    }

    #[test]
    fn a_vector_is_known_by_its_pointer() {
        for (words, expected) in [
            (vec![64, HEAP, 38, 2], Some(38)),
            (vec![HEAP, 64, 38], Some(38)),
            (vec![0, 4, 0], Some(0)),
            (vec![1 << 63, HEAP, 38], None),
            (vec![2, HEAP, 64, 38], None),
            (vec![64, HEAP], None),
        ] {
            assert_eq!(vector_tokens(&memory(&words)), expected, "{words:x?}");
        }
    }

    #[test]
    fn a_register_is_a_count_unless_there_was_no_room() {
        assert_eq!(tokens_returned(38), Some(38));
        assert_eq!(
            tokens_returned(0xdead_beef_0000_0026),
            Some(38),
            "the upper half is not defined"
        );
        assert_eq!(tokens_returned(u64::from(-38_i32 as u32)), None);
        assert_eq!(tokens_returned(u64::from(i32::MIN as u32)), None);
    }

    proptest! {
        #[test]
        fn no_memory_makes_it_panic(memory in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = (encoding_tokens(&memory), vector_tokens(&memory));
        }
    }
}
