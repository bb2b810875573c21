//! ELF files of every shape, made by the toolchain that builds this crate, and what became of them under way.

use super::*;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

/// Functions whose code is their own name: that is how a test knows that an offset is theirs.
const FUNCTIONS: &str = r#"
    .text
    .globl _start, exported, _ZNK11llama_vocab8tokenizeEPKci, chosen
    .type _start, @function
    .type exported, @function
    .type local, @function
    .type _ZNK11llama_vocab8tokenizeEPKci, @function
    .type chosen, @gnu_indirect_function
    .type data, @object
_start: .ascii "_start.."
exported: .ascii "exported"
    .size exported, 8
local: .ascii "local..."
    .size local, 8
data: .ascii "data...."
chosen: .ascii "chosen.."
_ZNK11llama_vocab8tokenizeEPKci: .ascii "tokenize"
    .size _ZNK11llama_vocab8tokenizeEPKci, 8
"#;

const WANTED: &[Wanted] = &[
    Wanted::C("exported"),
    Wanted::C("local"),
    Wanted::Cpp("llama_vocab::tokenize"),
    Wanted::C("data"),
    Wanted::C("chosen"),
    Wanted::C("absent"),
];

struct Built {
    _dir: TempDir,
    path: PathBuf,
}

fn run(command: &mut Command) {
    let output = command.output().expect("the toolchain runs");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn build(source: &str, flags: &[&str]) -> Built {
    let dir = tempfile::tempdir().expect("a folder");
    let (text, path) = (dir.path().join("a.s"), dir.path().join("a"));
    std::fs::write(&text, source).expect("written");
    run(Command::new("cc")
        .arg("-nostdlib")
        .args(flags)
        .arg("-o")
        .arg(&path)
        .arg(&text));
    Built { _dir: dir, path }
}

/// What was found: name and the bytes there.
fn found(path: &Path, wanted: &[Wanted]) -> (Functions, Vec<(usize, String)>) {
    let functions = find(path, wanted).expect("a good file");
    let file = File::open(path).expect("opened");
    let code = functions
        .found
        .iter()
        .map(|function| {
            let mut code = [0; 8];
            file.read_exact_at(&mut code, function.offset)
                .expect("within the file");
            (function.wanted, String::from_utf8_lossy(&code).into_owned())
        })
        .collect();
    (functions, code)
}

fn all() -> Vec<(usize, String)> {
    vec![
        (0, "exported".into()),
        (1, "local...".into()),
        (2, "tokenize".into()),
    ]
}

#[test]
fn every_kind_of_file_gives_the_offset_of_the_code() {
    for flags in [
        &["-shared"][..],
        &["-static-pie"],
        &["-pie"],
        &["-no-pie"],
        &["-static", "-no-pie"],
        // Segments that begin elsewhere in memory than in the file.
        &["-no-pie", "-Wl,-Ttext=0x7654000"],
        &["-shared", "-Wl,--hash-style=sysv"],
        &["-shared", "-Wl,-z,noseparate-code"],
    ] {
        let built = build(FUNCTIONS, flags);
        let (functions, code) = found(&built.path, WANTED);
        assert_eq!(code, all(), "{flags:?}");
        assert!(!functions.stripped, "{flags:?}");
        assert!(functions.found.iter().all(|function| function.size == 8));
        // Both tables name it, or only the one.
        assert!(functions.indirect >= 1, "{flags:?}");
        assert_eq!(functions.of(2).count(), 1);
    }
}

#[test]
fn a_stripped_library_gives_what_it_exports_and_a_stripped_executable_nothing() {
    let library = build(FUNCTIONS, &["-shared", "-s"]);
    let (functions, code) = found(&library.path, WANTED);
    assert_eq!(code, [(0, "exported".into()), (2, "tokenize".into())]);
    assert!(functions.stripped);

    let executable = build(FUNCTIONS, &["-no-pie", "-static", "-s"]);
    let (functions, code) = found(&executable.path, WANTED);
    assert_eq!(code, []);
    assert!(functions.stripped);
}

#[test]
fn versioned_symbols_are_found_without_their_version() {
    let source = r#"
    .text
    .globl old, new
    .type old, @function
    .type new, @function
old: .ascii "old....."
new: .ascii "new....."
    .symver old, llama_encode@V1
    .symver new, llama_encode@@V2
"#;
    let dir = tempfile::tempdir().expect("a folder");
    let script = dir.path().join("versions");
    std::fs::write(&script, "V1 { };\nV2 { } V1;\n").expect("written");
    let option = format!("-Wl,--version-script={}", script.display());
    for strip in ["-Wl,-O1", "-s"] {
        let built = build(source, &["-shared", &option, strip]);
        let (_, code) = found(&built.path, &[Wanted::C("llama_encode")]);
        assert_eq!(code, [(0, "old.....".into()), (0, "new.....".into())], "{strip}");
    }
}

#[test]
fn names_that_share_their_end_in_the_string_table_are_told_apart() {
    let source = r#"
    .text
    .globl prefix_shared_end, shared_end, end
    .type prefix_shared_end, @function
    .type shared_end, @function
    .type end, @function
prefix_shared_end: .ascii "prefix.."
shared_end: .ascii "shared.."
end: .ascii "end....."
"#;
    let built = build(source, &["-shared", "-s", "-Wl,-O2"]);
    let (_, code) = found(&built.path, &[Wanted::C("shared_end"), Wanted::C("end")]);
    assert_eq!(code, [(0, "shared..".into()), (1, "end.....".into())]);
}

#[test]
fn every_copy_of_a_generic_rust_function_is_found() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, path) = (dir.path().join("sample.rs"), dir.path().join("sample.so"));
    std::fs::write(
        &source,
        r#"
        pub struct Model<M, N>(M, N);
        pub trait Encode { fn encode(&self) -> usize; }
        impl<M: std::fmt::Debug, N> Model<M, N> {
            #[inline(never)]
            pub fn encode_fast(&self) -> usize { std::hint::black_box(format!("{:?}", self.0).len()) }
        }
        impl<M: std::fmt::Debug, N> Encode for Model<M, N> {
            #[inline(never)]
            fn encode(&self) -> usize { std::hint::black_box(format!("{:?}", self.0).len() + 1) }
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn entry(a: u8) -> usize {
            let (one, two) = (Model(a, "x"), Model(u64::from(a), 'y'));
            one.encode_fast() + two.encode_fast() + one.encode()
        }
        "#,
    )
    .expect("written");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let wanted = [
        Wanted::Rust("sample::Model::encode_fast"),
        Wanted::Rust("<sample::Model as sample::Encode>::encode"),
        Wanted::C("entry"),
    ];
    for flags in [&[][..], &["-C", "symbol-mangling-version=v0"]] {
        run(Command::new(&rustc)
            .args(["--edition=2024", "--crate-type=cdylib", "-C", "opt-level=1"])
            .args(flags)
            .arg("-o")
            .arg(&path)
            .arg(&source));
        let functions = find(&path, &wanted).expect("a good file");
        let counts: Vec<usize> = (0..wanted.len())
            .map(|wanted| functions.of(wanted).count())
            .collect();
        assert_eq!(counts, [2, 1, 1], "{flags:?}: {:?}", functions.found);
        assert!(functions.found.iter().all(|function| function.size > 0));
    }
}

#[test]
fn this_test_finds_itself() {
    let functions = find(
        Path::new("/proc/self/exe"),
        &[Wanted::Rust(
            "infertap::probe::symbols::tests::this_test_finds_itself",
        )],
    )
    .expect("a good file");
    assert_eq!(functions.found.len(), 1, "{functions:?}");
}

#[test]
fn what_is_no_elf_file_says_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("file");
    for (content, expected) in [
        (&b""[..], "too short"),
        (b"\x7fELF", "too short"),
        (&[b'x'; 200], "not 64-bit little-endian ELF"),
    ] {
        std::fs::write(&path, content).expect("written");
        let error = find(&path, WANTED).expect_err("not ELF").to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert!(matches!(find(dir.path(), WANTED), Err(SymbolError::NotAFile)));
    assert!(matches!(
        find(Path::new("/dev/null"), WANTED),
        Err(SymbolError::NotAFile)
    ));
    let pipe = dir.path().join("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    assert!(matches!(find(&pipe, WANTED), Err(SymbolError::NotAFile)));
    // An object file has no segments to load.
    let object = build(FUNCTIONS, &["-c"]);
    let error = find(&object.path, WANTED).expect_err("not linked").to_string();
    assert!(error.contains("neither an executable nor a library"), "{error}");
}

static SAMPLE: LazyLock<Vec<u8>> =
    LazyLock::new(|| std::fs::read(build(FUNCTIONS, &["-shared"]).path).expect("read"));

/// Searches a file of these bytes. Whatever it says, what is found lies within it.
fn search_bytes(bytes: &[u8]) -> Result<Functions, SymbolError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    let result = find(file.path(), WANTED);
    if let Ok(functions) = &result {
        assert!(
            functions
                .found
                .iter()
                .all(|function| function.offset < bytes.len() as u64)
        );
    }
    result
}

#[test]
fn a_table_that_claims_to_be_huge_is_refused_and_not_read() {
    let at = |offset: usize| {
        u64::from_le_bytes(SAMPLE[offset..offset + 8].try_into().expect("eight bytes")) as usize
    };
    let sections = at(0x28);
    let mut refused = 0;
    for index in 0..usize::from(SAMPLE[0x3c]) {
        let mut bytes = SAMPLE.clone();
        let size = sections + index * 64 + 32;
        bytes[size..size + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        refused += usize::from(matches!(search_bytes(&bytes), Err(SymbolError::TooLarge { .. })));
    }
    // Two symbol tables and their names.
    assert_eq!(refused, 4);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_truncated_file_does_no_harm(length in 0..SAMPLE.len()) {
        let _ = search_bytes(&SAMPLE[..length]);
    }

    #[test]
    fn a_mutated_file_does_no_harm(
        changes in prop::collection::vec((0..SAMPLE.len(), any::<u8>()), 1..20),
        header in prop::collection::vec((0_usize..64, any::<u8>()), 0..3),
    ) {
        let mut bytes = SAMPLE.clone();
        for (at, value) in changes.into_iter().chain(header) {
            bytes[at] = value;
        }
        let _ = search_bytes(&bytes);
    }

    #[test]
    fn section_headers_that_lie_do_no_harm(
        field in 0_usize..8, index in 0_usize..12, value in any::<u64>(),
    ) {
        let sections = u64::from_le_bytes(SAMPLE[0x28..0x30].try_into().expect("eight bytes")) as usize;
        let at = sections + index * 64 + field * 8;
        let mut bytes = SAMPLE.clone();
        if let Some(place) = bytes.get_mut(at..at + 8) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        let _ = search_bytes(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn names_are_found_wherever_the_pieces_that_are_read_end(
        padding in (1_usize << 20) - 64..(1 << 20) + 64,
        long in 0_usize..2 << 20,
    ) {
        // A string table written by hand: what is read at once is a mebibyte.
        let mut strings = vec![0];
        strings.extend(std::iter::repeat_n(b'x', long));
        strings.push(0);
        strings.extend(b"other\0".iter().cycle().take(padding));
        strings.push(0);
        let begin = strings.len() as u64;
        strings.extend(b"exported\0tail");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &strings).expect("written");
        let table = Table { offset: 0, entries: 0, strings_offset: 0, strings_size: strings.len() as u64 };
        let mut oversized = 0;
        let found = Strings::containing(file.as_file(), &table, &name::needles(WANTED), &mut oversized)
            .expect("a good table");
        prop_assert_eq!(found.names, vec![(begin, b"exported".to_vec())]);
        prop_assert_eq!(oversized, usize::from(long > 1 << 20));
    }
}
