//! Functions in ELF files, by name, as the file offsets that a uprobe goes on.
//!
//! Owns: finding exact C names and demangled Rust and C++ paths in `.symtab` and `.dynsym`. Refuses: debug information,
//! compressed symbols (`.gnu_debugdata`) and guesses in stripped files: such a file is [`Functions::stripped`].
//!
//! The files belong to other processes' containers, so they may say anything: every table is read in pieces, with limits on
//! size and on the number of names looked at, and nothing in them can make the reader panic.

mod elf;
mod name;
#[cfg(target_arch = "x86_64")]
mod place;
#[cfg(test)]
mod tests;

use elf::{ElfFile, Strings, Table};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

/// A function to look for. Generic arguments, hashes and parameters are not part of a path: every monomorphised copy
/// and every overload of it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// An exact symbol, without its version: `llama_decode`.
    C(&'static str),
    /// A Rust path: `tokenizers::tokenizer::TokenizerImpl::encode`. A method of a trait is written
    /// `<path::Type as path::Trait>::method`. v0 and legacy mangling. Closures inside the function are not it.
    Rust(&'static str),
    /// A C++ path: `server_context_impl::update_slots`.
    Cpp(&'static str),
}

/// One function that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Index into what was wanted.
    pub wanted: usize,
    /// The symbol as it stands in the file.
    pub symbol: String,
    /// Offset of its first instruction in the file.
    pub offset: u64,
    /// Offset at which a uprobe on its entry costs least: that of the first instruction, or of one shortly after it at
    /// which arguments and stack are still the same.
    pub place: u64,
    /// Bytes of code; 0 when the file does not say.
    pub size: u64,
}

/// What a file has of the functions that were wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Functions {
    /// By index of what was wanted, then by offset; one entry an offset, however many names it has.
    pub found: Vec<Function>,
    /// The file has no `.symtab`: functions that it does not export cannot be found.
    pub stripped: bool,
    /// Matches that are resolvers of an indirect function (IFUNC), and not the function: nothing to probe.
    pub indirect: usize,
    /// Matches whose address lies in no executable part of the file.
    pub misplaced: usize,
    /// Names that were longer than what is read.
    pub oversized: usize,
}

impl Functions {
    /// Where the wanted function with this index is.
    pub fn of(&self, wanted: usize) -> impl Iterator<Item = &Function> {
        self.found
            .iter()
            .filter(move |function| function.wanted == wanted)
    }
}

/// Why a file could not be searched.
#[derive(Debug, thiserror::Error)]
pub enum SymbolError {
    /// Opening or reading failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is a directory, a pipe or a device.
    #[error("not a regular file")]
    NotAFile,
    /// Something else than a 64-bit little-endian ELF executable or library.
    #[error("not an ELF file that can be probed: {0}")]
    NotElf(&'static str),
    /// Its tables contradict each other or the file's size.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
    /// A table is larger than what is looked at.
    #[error("its {what} is {size} large, more than the {limit} that are looked at")]
    TooLarge {
        /// Which table.
        what: &'static str,
        /// Its size, in bytes or entries.
        size: u64,
        /// The limit, in the same unit.
        limit: u64,
    },
}

/// Looks in the file at `path`, which may be a link in `/proc/PID/map_files`.
///
/// # Errors
/// See [`SymbolError`]. A file that has none of the functions is not an error.
pub fn find(path: &Path, wanted: &[Wanted]) -> Result<Functions, SymbolError> {
    find_in(&elf::open(path)?, wanted)
}

/// Looks in an open file.
///
/// # Errors
/// As [`find`].
pub fn find_in(file: &File, wanted: &[Wanted]) -> Result<Functions, SymbolError> {
    let elf = ElfFile::read(file)?;
    let mut result = Functions {
        stripped: elf.symtab.is_none(),
        ..Functions::default()
    };
    let mut seen = BTreeSet::new();
    for table in elf.symtab.iter().chain(elf.dynsym.iter()) {
        search(&elf, table, wanted, &mut seen, &mut result)?;
    }
    result
        .found
        .sort_by_key(|function| (function.wanted, function.offset));
    Ok(result)
}

/// First the names, then the symbols that bear one of them: most files have neither, and their symbols are not read.
fn search(
    elf: &ElfFile,
    table: &Table,
    wanted: &[Wanted],
    seen: &mut BTreeSet<(usize, u64)>,
    result: &mut Functions,
) -> Result<(), SymbolError> {
    let names = Strings::containing(elf.file, table, &name::needles(wanted), &mut result.oversized)?;
    if names.is_empty() {
        return Ok(());
    }
    elf.each_function(table, |symbol| {
        let Some(raw) = names.at(symbol.name) else {
            return;
        };
        for index in name::matches(raw, wanted) {
            if symbol.indirect {
                result.indirect += 1;
                continue;
            }
            let Some(offset) = elf.file_offset(symbol.address) else {
                result.misplaced += 1;
                continue;
            };
            if seen.insert((index, offset)) {
                result.found.push(Function {
                    wanted: index,
                    symbol: String::from_utf8_lossy(raw).into_owned(),
                    offset,
                    place: offset + place_in(elf.file, offset, symbol.size),
                    size: symbol.size,
                });
            }
        }
    })
}

/// Bytes of code that are looked at for a place: a function with more, or of unknown size, is probed at its first instruction.
#[cfg(target_arch = "x86_64")]
const MAX_CODE: u64 = 256 << 10;

#[cfg(target_arch = "x86_64")]
fn place_in(file: &File, offset: u64, size: u64) -> u64 {
    use std::os::unix::fs::FileExt;
    if size > MAX_CODE {
        return 0;
    }
    let mut code = vec![0; size as usize];
    file.read_exact_at(&mut code, offset)
        .map_or(0, |()| place::least_cost(&code) as u64)
}

/// Instructions are emulated or not by rules of each architecture.
#[cfg(not(target_arch = "x86_64"))]
fn place_in(_file: &File, _offset: u64, _size: u64) -> u64 {
    0
}
