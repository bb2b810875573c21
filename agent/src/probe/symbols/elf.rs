//! Reading an ELF file's headers, string tables and symbol tables in bounded pieces.
//!
//! Owns: limits, and the way from an address to an offset in the file. Refuses: names' meaning. The file is read, not
//! mapped: one that shrinks meanwhile is an error, and not a signal.

use super::SymbolError;
use memchr::memmem::Finder;
use memchr::{memchr, memrchr};
use object::elf::{
    ET_DYN, ET_EXEC, FileHeader64, PF_X, PT_LOAD, ProgramHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
    STT_FUNC, STT_GNU_IFUNC, SectionHeader64, Sym64,
};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::{LittleEndian, SectionIndex};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const ENDIAN: LittleEndian = LittleEndian;
/// Sections and segments: files with function sections have some ten thousand before they are linked, and a hundred after.
const MAX_HEADERS: u64 = 16 * 1024;
/// Bytes of a string table. The largest in the field, of libraries with many templates, are some 100 MiB.
const MAX_STRINGS: u64 = 1 << 30;
/// Entries of a symbol table: a string table of that size holds fewer.
const MAX_SYMBOLS: u64 = 16 << 20;
/// Bytes of one name. Generic Rust names reach some thousand.
const MAX_NAME: usize = 16 << 10;
/// Bytes of all names that contain what is looked for: a few hundred kilobytes in the `tokenizers` library.
const MAX_NAMES: usize = 32 << 20;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Opens a regular file for reading, without waiting for the other end of a pipe that may have taken its place.
pub(super) fn open(path: &Path) -> Result<File, SymbolError> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(SymbolError::NotAFile);
    }
    Ok(file)
}

/// Where a symbol table and its names lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) offset: u64,
    pub(super) entries: u64,
    pub(super) strings_offset: u64,
    pub(super) strings_size: u64,
}

/// A file whose headers make sense.
pub(super) struct ElfFile<'a> {
    pub(super) file: &'a File,
    length: u64,
    code: Vec<Segment>,
    pub(super) symtab: Option<Table>,
    pub(super) dynsym: Option<Table>,
}

struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

/// A function's entry in a symbol table.
pub(super) struct FunctionSymbol {
    /// Offset of its name in the string table.
    pub(super) name: u32,
    pub(super) address: u64,
    pub(super) size: u64,
    /// The address is that of an IFUNC's resolver.
    pub(super) indirect: bool,
}

impl<'a> ElfFile<'a> {
    pub(super) fn read(file: &'a File) -> Result<ElfFile<'a>, SymbolError> {
        let length = file.metadata()?.len();
        if length < size_of::<FileHeader64<LittleEndian>>() as u64 {
            return Err(SymbolError::NotElf("too short"));
        }
        let header = array::<FileHeader64<LittleEndian>>(file, 0, 1)?;
        let header = header.first().ok_or(SymbolError::NotElf("too short"))?;
        if !header.is_supported() || !header.is_class_64() || !header.is_little_endian() {
            return Err(SymbolError::NotElf("not 64-bit little-endian ELF"));
        }
        if !matches!(header.e_type(ENDIAN), ET_EXEC | ET_DYN) {
            return Err(SymbolError::NotElf("neither an executable nor a library"));
        }
        let segments: Vec<ProgramHeader64<LittleEndian>> = headers(
            file,
            "program header table",
            header.e_phoff(ENDIAN),
            header.e_phnum(ENDIAN),
            header.e_phentsize(ENDIAN),
        )?;
        let sections: Vec<SectionHeader64<LittleEndian>> = headers(
            file,
            "section header table",
            header.e_shoff(ENDIAN),
            header.e_shnum(ENDIAN),
            header.e_shentsize(ENDIAN),
        )?;
        let code = segments
            .iter()
            .filter(|segment| segment.p_type(ENDIAN) == PT_LOAD && segment.p_flags(ENDIAN) & PF_X != 0)
            .map(|segment| Segment {
                address: segment.p_vaddr(ENDIAN),
                offset: segment.p_offset(ENDIAN),
                size: segment.p_filesz(ENDIAN),
            })
            .collect();
        Ok(ElfFile {
            file,
            length,
            code,
            symtab: table(&sections, SHT_SYMTAB, length)?,
            dynsym: table(&sections, SHT_DYNSYM, length)?,
        })
    }

    /// Where in the file the code at this address is; `None` outside of what is executable.
    pub(super) fn file_offset(&self, address: u64) -> Option<u64> {
        self.code.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.size)
                .then(|| segment.offset.checked_add(within))?
                .filter(|offset| *offset < self.length)
        })
    }

    /// Every function that the table defines.
    pub(super) fn each_function(
        &self,
        table: &Table,
        mut visit: impl FnMut(&FunctionSymbol),
    ) -> Result<(), SymbolError> {
        let size = size_of::<Sym64<LittleEndian>>() as u64;
        let mut next = 0;
        while next < table.entries {
            let count = (table.entries - next).min(CHUNK as u64 / size);
            for symbol in array::<Sym64<LittleEndian>>(self.file, table.offset + next * size, count)? {
                let kind = symbol.st_type();
                if !matches!(kind, STT_FUNC | STT_GNU_IFUNC) || symbol.st_shndx(ENDIAN) == SHN_UNDEF {
                    continue;
                }
                visit(&FunctionSymbol {
                    name: symbol.st_name(ENDIAN),
                    address: symbol.st_value(ENDIAN),
                    size: symbol.st_size(ENDIAN),
                    indirect: kind == STT_GNU_IFUNC,
                });
            }
            next += count;
        }
        Ok(())
    }
}

/// Some names of a string table, by where they begin.
pub(super) struct Strings {
    pub(super) names: Vec<(u64, Vec<u8>)>,
}

impl Strings {
    /// The names that contain one of the needles.
    pub(super) fn containing(
        file: &File,
        table: &Table,
        needles: &[Vec<u8>],
        oversized: &mut usize,
    ) -> Result<Strings, SymbolError> {
        let finders: Vec<Finder> = needles.iter().map(Finder::new).collect();
        let mut names = Vec::new();
        let mut bytes = 0;
        // What was read and not yet looked at: it begins at `begin` in the table. Within a name that is too long, it is dropped.
        let mut pending: Vec<u8> = Vec::new();
        let mut begin = 0;
        let mut skipping = false;
        let mut read = 0;
        while read < table.strings_size {
            let count = (table.strings_size - read).min(CHUNK as u64);
            let old = pending.len();
            pending.resize(old + count as usize, 0);
            file.read_exact_at(&mut pending[old..], table.strings_offset + read)?;
            read += count;
            let whole = match memrchr(0, &pending) {
                Some(last) => last + 1,
                // The last name of a table ends with it, even without its zero.
                None if read == table.strings_size => pending.len(),
                None => 0,
            };
            let mut looked = &pending[..whole];
            let mut at = begin;
            if skipping && whole > 0 {
                let end = memchr(0, looked).map_or(whole, |end| end + 1);
                (looked, at) = (&looked[end..], begin + end as u64);
                skipping = false;
            }
            collect(looked, at, &finders, &mut names, &mut bytes, oversized)?;
            pending.drain(..whole);
            begin += whole as u64;
            if pending.len() > MAX_NAME {
                *oversized += usize::from(!skipping);
                skipping = true;
                begin += pending.len() as u64;
                pending.clear();
            }
        }
        Ok(Strings { names })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The name that begins at `offset`: a linker lets a name begin within one that ends alike.
    pub(super) fn at(&self, offset: u32) -> Option<&[u8]> {
        let offset = u64::from(offset);
        let after = self.names.partition_point(|(begin, _)| *begin <= offset);
        let (begin, name) = self.names.get(after.checked_sub(1)?)?;
        name.get(usize::try_from(offset - begin).ok()?..)
            .filter(|name| !name.is_empty())
    }
}

/// Takes the names with a needle out of `strings`, which begins a name and begins at `at` in its table.
fn collect(
    strings: &[u8],
    at: u64,
    finders: &[Finder],
    names: &mut Vec<(u64, Vec<u8>)>,
    bytes: &mut usize,
    oversized: &mut usize,
) -> Result<(), SymbolError> {
    let mut hits: Vec<(usize, usize)> = Vec::new();
    for finder in finders {
        let mut from = 0;
        while let Some(hit) = strings.get(from..).and_then(|rest| finder.find(rest)) {
            let hit = from + hit;
            let begin = memrchr(0, &strings[..hit]).map_or(0, |zero| zero + 1);
            let end = memchr(0, &strings[hit..]).map_or(strings.len(), |zero| hit + zero);
            if end - begin > MAX_NAME {
                *oversized += 1;
            } else {
                hits.push((begin, end));
                *bytes += end - begin + size_of::<(u64, Vec<u8>)>();
            }
            if *bytes > MAX_NAMES {
                return Err(SymbolError::TooLarge {
                    what: "part of the string table that resembles what is looked for",
                    size: *bytes as u64,
                    limit: MAX_NAMES as u64,
                });
            }
            from = end + 1;
        }
    }
    hits.sort_unstable();
    hits.dedup();
    names.extend(
        hits.into_iter()
            .map(|(begin, end)| (at + begin as u64, strings[begin..end].to_vec())),
    );
    Ok(())
}

/// The first symbol table of a kind, with its string table.
fn table(
    sections: &[SectionHeader64<LittleEndian>],
    kind: u32,
    length: u64,
) -> Result<Option<Table>, SymbolError> {
    let Some(symbols) = sections.iter().find(|section| section.sh_type(ENDIAN) == kind) else {
        return Ok(None);
    };
    let entry = size_of::<Sym64<LittleEndian>>() as u64;
    if symbols.sh_entsize(ENDIAN) != entry {
        return Err(SymbolError::Malformed("a symbol has an unknown size"));
    }
    let SectionIndex(link) = symbols.link(ENDIAN);
    let strings = sections
        .get(link)
        .ok_or(SymbolError::Malformed("a symbol table without names"))?;
    let result = Table {
        offset: symbols.sh_offset(ENDIAN),
        entries: symbols.sh_size(ENDIAN) / entry,
        strings_offset: strings.sh_offset(ENDIAN),
        strings_size: strings.sh_size(ENDIAN),
    };
    for (what, size, limit) in [
        ("symbol table", result.entries, MAX_SYMBOLS),
        ("string table", result.strings_size, MAX_STRINGS),
    ] {
        if size > limit {
            return Err(SymbolError::TooLarge { what, size, limit });
        }
    }
    let within = |offset: u64, size: u64| offset.checked_add(size).is_some_and(|end| end <= length);
    if !within(result.offset, result.entries * entry) || !within(result.strings_offset, result.strings_size) {
        return Err(SymbolError::Malformed(
            "a symbol table beyond the end of the file",
        ));
    }
    Ok(Some(result))
}

/// Reads a header table. None at all is a table of no entries: what is stripped of its section headers still runs.
fn headers<T: Pod>(
    file: &File,
    what: &'static str,
    offset: u64,
    count: u16,
    size: u16,
) -> Result<Vec<T>, SymbolError> {
    if count == 0 || offset == 0 {
        return Ok(Vec::new());
    }
    if usize::from(size) != size_of::<T>() {
        return Err(SymbolError::Malformed("a header has an unknown size"));
    }
    let count = u64::from(count);
    if count > MAX_HEADERS {
        return Err(SymbolError::TooLarge {
            what,
            size: count,
            limit: MAX_HEADERS,
        });
    }
    array(file, offset, count)
}

/// Reads `count` values; callers bound it.
fn array<T: Pod>(file: &File, offset: u64, count: u64) -> Result<Vec<T>, SymbolError> {
    let bytes = count as usize * size_of::<T>();
    // As words, because the values ask to be aligned.
    let mut words = vec![0_u64; bytes.div_ceil(size_of::<u64>())];
    let buffer = pod::bytes_of_slice_mut(&mut words)
        .get_mut(..bytes)
        .ok_or(SymbolError::Malformed("a table of no size"))?;
    file.read_exact_at(buffer, offset).map_err(|error| {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            SymbolError::Malformed("a table beyond the end of the file")
        } else {
            SymbolError::Io(error)
        }
    })?;
    let (values, _) = pod::slice_from_bytes::<T>(pod::bytes_of_slice(&words), count as usize)
        .map_err(|()| SymbolError::Malformed("a table of no size"))?;
    Ok(values.to_vec())
}
