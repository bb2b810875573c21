//! Patterns: `*` stands for any characters, `?` for one byte.
//!
//! Owns: matching, in time that no pattern makes exponential. Refuses: case and normalisation (the caller's).

/// Whether `text` is what `pattern` describes.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when the rest does not fit: the last star takes one byte more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut retry {
                Some((star, from)) => {
                    *from += 1;
                    (p, t) = (*star + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}
