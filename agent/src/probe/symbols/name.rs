//! Whether a symbol's name is the function that is wanted: demangling, and paths without what varies from build to build.
//!
//! Owns: the comparison. Refuses: tables. Names come from hostile files: their length, depth and demangled size are bounded.

use super::Wanted;
use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use std::fmt::{self, Write};

/// Bytes of a demangled name. A path that is wanted has some fifty; its generic arguments may have thousands.
const MAX_DEMANGLED: usize = 64 << 10;
/// Bytes of a mangled C++ name: parsing one goes back and forth.
const MAX_CPP: usize = 2 << 10;
/// Depth of C++ grammar.
const MAX_CPP_DEPTH: u32 = 64;
/// Depth of qualified paths (`<<A as B>::C as D>::f`).
const MAX_DEPTH: usize = 8;

/// What a symbol's name contains when it can be one of those wanted. Mangling writes an identifier as its length and itself.
pub(super) fn needles(wanted: &[Wanted]) -> Vec<Vec<u8>> {
    let mut needles = Vec::new();
    for wanted in wanted {
        match wanted {
            Wanted::C(name) => needles.push(name.as_bytes().to_vec()),
            Wanted::Rust(path) | Wanted::Cpp(path) => {
                let last = path.rsplit("::").next().unwrap_or(path);
                needles.push(format!("{}{last}", last.len()).into_bytes());
                // v0 sets an identifier off from its length where it begins like more of it.
                if last.starts_with('_') {
                    needles.push(format!("{}_{last}", last.len()).into_bytes());
                }
            }
        }
    }
    needles.sort_unstable();
    needles.dedup();
    needles
}

/// Which of those wanted a symbol is.
pub(super) fn matches(symbol: &[u8], wanted: &[Wanted]) -> Vec<usize> {
    let mut rust = None;
    let mut cpp = None;
    wanted
        .iter()
        .enumerate()
        .filter(|(_, wanted)| match wanted {
            Wanted::C(name) => without_version(symbol) == name.as_bytes(),
            Wanted::Rust(path) => rust.get_or_insert_with(|| rust_path(symbol)).as_deref() == Some(*path),
            Wanted::Cpp(path) => cpp.get_or_insert_with(|| cpp_path(symbol)).as_deref() == Some(*path),
        })
        .map(|(index, _)| index)
        .collect()
}

/// `name@VERSION` and `name@@VERSION` are how `.symtab` names versioned symbols.
fn without_version(symbol: &[u8]) -> &[u8] {
    symbol.split(|byte| *byte == b'@').next().unwrap_or_default()
}

/// The path of a mangled Rust name.
fn rust_path(symbol: &[u8]) -> Option<String> {
    let symbol = std::str::from_utf8(symbol).ok()?;
    let demangled = rustc_demangle::try_demangle(symbol).ok()?;
    let mut text = Bounded::default();
    // Alternate: without hashes.
    write!(text, "{demangled:#}").ok()?;
    path(&text.0, MAX_DEPTH)
}

/// The path of a mangled C++ name.
fn cpp_path(symbol: &[u8]) -> Option<String> {
    let symbol = without_version(symbol);
    // A clone (`.cold`, `.isra.0`) is part of a function, or one with other arguments.
    if symbol.len() > MAX_CPP || !symbol.starts_with(b"_Z") || symbol.contains(&b'.') {
        return None;
    }
    let parsed =
        Symbol::new_with_options(symbol, &ParseOptions::default().recursion_limit(MAX_CPP_DEPTH)).ok()?;
    let options = DemangleOptions::new()
        .no_params()
        .no_return_type()
        .recursion_limit(MAX_CPP_DEPTH);
    let mut text = Bounded::default();
    parsed.structured_demangle(&mut text, &options).ok()?;
    path(text.0.strip_suffix(" const").unwrap_or(&text.0), MAX_DEPTH)
}

/// A string that refuses to grow beyond what a name can need.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// A demangled name without generic arguments: `<a::B<C>>::d::<E>` and `a::B<C>::d` are both `a::B::d`.
/// `None` when the brackets do not match.
fn path(demangled: &str, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    let mut result = String::new();
    let mut rest = demangled;
    if rest.starts_with('<') {
        let (inner, after) = bracketed(rest)?;
        match split_as(inner) {
            Some((kind, of)) => {
                write!(result, "<{} as {}>", path(kind, depth)?, path(of, depth)?).ok()?;
            }
            None => result = path(inner, depth)?,
        }
        rest = after;
    }
    while let Some(open) = rest.find('<') {
        let (before, from) = rest.split_at(open);
        let (inner, after) = bracketed(from)?;
        if inner.starts_with("impl ") {
            // Legacy names of trait methods: the implementation is a part of the path.
            write!(result, "{before}<{inner}>").ok()?;
        } else {
            result.push_str(before.strip_suffix("::").unwrap_or(before));
        }
        rest = after;
    }
    result.push_str(rest);
    Some(result)
}

/// What the bracket that `text` begins with encloses, and what follows it. The arrow of a function type is no bracket.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut last = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if last != b'-' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some((text.get(1..at)?, text.get(at + 1..)?));
                }
            }
            _ => {}
        }
        last = byte;
    }
    None
}

/// `Type as Trait`, where the `as` is not within brackets.
fn split_as(inner: &str) -> Option<(&str, &str)> {
    let mut depth = 0_usize;
    let mut last = 0;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if last != b'-' => depth = depth.checked_sub(1)?,
            b' ' if depth == 0 && inner.get(at..).is_some_and(|rest| rest.starts_with(" as ")) => {
                return Some((inner.get(..at)?, inner.get(at + 4..)?));
            }
            _ => {}
        }
        last = byte;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_a_name_without_what_varies() {
        for (demangled, expected) in [
            ("a::b", Some("a::b")),
            ("<a::B>::c", Some("a::B::c")),
            ("<a::B<C, D>>::c::<E>", Some("a::B::c")),
            ("a::B<C,D>::c", Some("a::B::c")),
            (
                "<a::B<C> as d::E<F>>::c::{closure#0}",
                Some("<a::B as d::E>::c::{closure#0}"),
            ),
            (
                "<<a::B as c::D>::E as f::G>::h",
                Some("<<a::B as c::D>::E as f::G>::h"),
            ),
            ("<a::B<fn(C) -> D>>::e::<fn() -> F>::g", Some("a::B::e::g")),
            (
                "a::<impl b::C for d::E<F>>::g",
                Some("a::<impl b::C for d::E<F>>::g"),
            ),
            ("a<b", None),
            ("operator<", None),
            ("<a", None),
            ("", Some("")),
        ] {
            assert_eq!(path(demangled, MAX_DEPTH).as_deref(), expected, "{demangled}");
        }
        let deep = "<".repeat(MAX_DEPTH + 1) + "a" + &">".repeat(MAX_DEPTH + 1);
        assert_eq!(path(&deep, MAX_DEPTH), None);
    }

    #[test]
    fn mangled_names_of_every_kind_are_recognised() {
        let wanted = [
            Wanted::C("llama_decode"),
            Wanted::Rust("tokenizers::tokenizer::TokenizerImpl::encode_fast"),
            Wanted::Cpp("llama_vocab::tokenize"),
        ];
        for (symbol, expected) in [
            ("llama_decode", Some(0)),
            ("llama_decode@@V1", Some(0)),
            ("llama_decode@V1", Some(0)),
            ("llama_decode.cold", None),
            ("my_llama_decode", None),
            // Legacy, with its hash.
            (
                "_ZN10tokenizers9tokenizer40TokenizerImpl$LT$M$C$N$C$PT$C$PP$C$D$GT$11encode_fast17h0123456789abcdefE",
                Some(1),
            ),
            (
                "_ZN10tokenizers9tokenizer40TokenizerImpl$LT$M$C$N$C$PT$C$PP$C$D$GT$11encode_fast28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
                None,
            ),
            ("_ZN11llama_vocab8tokenizeERKSsbb", Some(2)),
            ("_ZNK11llama_vocab8tokenizeEPKciPiibb", Some(2)),
            ("_ZNK11llama_vocab8tokenizeEPKciPiibb.cold", None),
            ("_ZNK11llama_vocab4impl8tokenizeERKSsbb", None),
            ("_ZN11llama_vocab10detokenizeEv", None),
        ] {
            let found = matches(symbol.as_bytes(), &wanted);
            assert_eq!(found.first().copied(), expected, "{symbol}");
            let needles = needles(&wanted);
            assert!(
                expected.is_none()
                    || needles
                        .iter()
                        .any(|needle| memchr::memmem::find(symbol.as_bytes(), needle).is_some()),
                "{symbol} would not be looked at"
            );
        }
    }

    proptest! {
        #[test]
        fn no_name_makes_it_panic(name in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = matches(&name, &[Wanted::Rust("a::b"), Wanted::Cpp("a::b")]);
        }

        #[test]
        fn no_name_that_looks_mangled_makes_it_panic(tail in "[_A-Z0-9a-z$.]{0,300}", head in "_R|_ZN|_ZNK|_Z") {
            let name = head + &tail;
            let _ = matches(name.as_bytes(), &[Wanted::Rust("a::b"), Wanted::Cpp("a::b")]);
        }

        #[test]
        fn no_demangled_name_makes_it_panic(name in "[<>a:, -]{0,200}") {
            let _ = path(&name, MAX_DEPTH);
        }
    }
}
