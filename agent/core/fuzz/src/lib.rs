//! What the fuzz targets share: reading a stream with gaps, and a way to split it, out of the fuzzer's bytes.
//!
//! Owns: that format. Refuses: assertions; each target has its own.
//! An input is two bytes of options, then the stream as it is; `\0G` and one byte in it stand for a gap of that length.
//! So a seed is an ordinary text with two bytes before it.

/// One step of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Bytes, never none.
    Feed(&'a [u8]),
    /// So many bytes are missing, at least one.
    Gap(u64),
}

/// Takes the options off an input.
pub fn options(input: &[u8]) -> Option<(u8, u8, &[u8])> {
    match input {
        [first, second, stream @ ..] => Some((*first, *second, stream)),
        _ => None,
    }
}

/// The stream as it is: one feed between two gaps.
pub fn whole(stream: &[u8]) -> Vec<Op<'_>> {
    let mut ops = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < stream.len() {
        if let [0, b'G', len, ..] = stream[at..] {
            if at > start {
                ops.push(Op::Feed(&stream[start..at]));
            }
            ops.push(Op::Gap(u64::from(len) + 1));
            at += 3;
            start = at;
        } else {
            at += 1;
        }
    }
    if start < stream.len() {
        ops.push(Op::Feed(&stream[start..]));
    }
    ops
}

/// The same stream in pieces; `seed` decides where they are cut. Gaps stay whole: where one takes the place with it, how
/// much of it still counts as the message's depends on its length.
pub fn split<'a>(ops: &[Op<'a>], seed: u8) -> Vec<Op<'a>> {
    let mut state = u32::from(seed);
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Mostly small pieces, now and then a large one.
        let cut = (state >> 24) as usize;
        if cut < 224 {
            1 + cut % (1 + usize::from(seed) / 8)
        } else {
            1 + cut * 8
        }
    };
    let mut pieces = Vec::new();
    for op in ops {
        match *op {
            Op::Feed(mut rest) => {
                while !rest.is_empty() {
                    let (piece, after) = rest.split_at(next().min(rest.len()));
                    pieces.push(Op::Feed(piece));
                    rest = after;
                }
            }
            gap @ Op::Gap(_) => pieces.push(gap),
        }
    }
    pieces
}
