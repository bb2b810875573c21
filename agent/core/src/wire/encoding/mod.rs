//! Content codings of bodies: gzip and deflate, undone as the bytes stream by.
//!
//! Owns: which coding a head names, a push decoder with bounded memory and bounded expansion. Refuses: `br`, `zstd` and
//! stacked codings (told apart from plain, so that the caller can count them), and checksums: an observer has no use
//! for them.

mod gzip;
#[cfg(test)]
mod tests;

use flate2::{Decompress, FlushDecompress, Status};
use gzip::{GzipHeader, GzipPhase};

/// Size of the pieces that the sink gets, at most.
const PIECE: usize = 16 * 1024;
/// Output that is always allowed.
const FREE_OUTPUT: u64 = 1024 * 1024;
/// Output allowed for each byte of input beyond that. JSON and event streams stay under 100; deflate ends at 1032.
const MAX_RATIO: u64 = 200;

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Coding {
    /// As it is.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950, or bare RFC 1951 as some peers send it.
    Deflate,
    /// `br`, `zstd`, several codings, or one that nobody knows.
    Unsupported,
}

impl Coding {
    /// The coding that a head's fields name (names in lower case): `content-encoding`, and `transfer-encoding` where it
    /// compresses below `chunked`.
    pub fn of(headers: &[(String, String)]) -> Coding {
        let mut coding = Coding::Identity;
        let fields = headers
            .iter()
            .filter(|(name, _)| name == "content-encoding" || name == "transfer-encoding");
        for token in fields.flat_map(|(_, value)| value.split(',')) {
            let next = match token.trim().to_ascii_lowercase().as_str() {
                "" | "identity" | "chunked" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "deflate" => Coding::Deflate,
                _ => Coding::Unsupported,
            };
            coding = if coding == Coding::Identity {
                next
            } else {
                Coding::Unsupported
            };
        }
        coding
    }
}

/// Why a body can't be decoded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// The bytes are not what the head says.
    #[error("compressed body is corrupt")]
    Corrupt,
    /// It expands beyond all measure.
    #[error("compressed body expands more than {MAX_RATIO} times")]
    Expansion,
    /// Bytes are missing; what follows can't be decoded without them.
    #[error("compressed body has missing bytes")]
    Gap,
    /// The coding is not decoded here.
    #[error("content coding is not supported")]
    Unsupported,
}

/// Where the decoder is.
#[derive(Debug)]
enum State {
    Plain,
    /// In a gzip header.
    Header(GzipHeader),
    /// Before the second byte of a deflate body, which tells whether it has a zlib header.
    Sniff(Option<u8>),
    /// `gzip`: a trailer follows.
    Inflate {
        inflate: Box<Decompress>,
        gzip: bool,
    },
    /// Bytes left of a gzip trailer.
    Trailer(u8),
    /// What follows the end of the compressed data is ignored.
    Done,
    Failed(EncodingError),
}

/// Push decoder of one body. Compressed bodies cost about 80 KiB while they last.
#[derive(Debug)]
pub struct ContentDecoder {
    state: State,
    consumed: u64,
    produced: u64,
}

impl ContentDecoder {
    /// A decoder for this coding. With [`Coding::Unsupported`] every feed fails.
    pub fn new(coding: Coding) -> ContentDecoder {
        let state = match coding {
            Coding::Identity => State::Plain,
            Coding::Gzip => State::Header(GzipHeader::default()),
            Coding::Deflate => State::Sniff(None),
            Coding::Unsupported => State::Failed(EncodingError::Unsupported),
        };
        ContentDecoder {
            state,
            consumed: 0,
            produced: 0,
        }
    }

    /// The next bytes of the body; `sink` gets the decoded ones in pieces of at most 16 KiB, or, when the body is not
    /// coded, `bytes` itself. All that can be decoded so far is given out at once.
    ///
    /// # Errors
    /// When the body can't be decoded; the same again for every later feed.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), EncodingError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let used = match &mut self.state {
                State::Plain => {
                    sink(rest);
                    return Ok(());
                }
                State::Done => return Ok(()),
                State::Failed(error) => return Err(*error),
                State::Header(header) => {
                    let used = header.feed(rest);
                    match header.phase {
                        GzipPhase::Done => self.inflate(false, true),
                        // After a whole member, what is no further member is padding.
                        GzipPhase::NoMember if header.follows => self.state = State::Done,
                        GzipPhase::NoMember | GzipPhase::Bad => return self.fail(EncodingError::Corrupt),
                        _ => {}
                    }
                    used
                }
                State::Sniff(None) => {
                    self.state = State::Sniff(Some(rest[0]));
                    1
                }
                State::Sniff(Some(first)) => {
                    // RFC 1950 2.2: method 8, and the two bytes are a multiple of 31.
                    let pair = [*first, rest[0]];
                    let zlib = pair[0] & 0x0f == 8 && u16::from_be_bytes(pair).is_multiple_of(31);
                    self.inflate(zlib, false);
                    self.decompress(&pair[..1], sink)?;
                    0
                }
                State::Inflate { .. } => self.decompress(rest, sink)?,
                State::Trailer(left) => {
                    let used = usize::from(*left).min(rest.len());
                    *left -= used as u8;
                    if *left == 0 {
                        self.state = State::Header(GzipHeader::next());
                    }
                    used
                }
            };
            rest = &rest[used..];
        }
        Ok(())
    }

    /// Bytes of the body are missing: a coded body can't be decoded any further.
    pub fn gap(&mut self) {
        if !matches!(self.state, State::Plain | State::Done | State::Failed(_)) {
            self.state = State::Failed(EncodingError::Gap);
        }
    }

    /// Whether the body, so far, is whole: not coded, or at the end of its compressed data.
    pub fn complete(&self) -> bool {
        match &self.state {
            State::Plain | State::Done => true,
            State::Header(header) => header.follows && header.seen == 0,
            _ => false,
        }
    }

    fn fail(&mut self, error: EncodingError) -> Result<(), EncodingError> {
        self.state = State::Failed(error);
        Err(error)
    }

    fn inflate(&mut self, zlib: bool, gzip: bool) {
        self.state = State::Inflate {
            inflate: Box::new(Decompress::new(zlib)),
            gzip,
        };
    }

    /// Inflates `bytes` as far as they go; returns how many were used.
    fn decompress(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<usize, EncodingError> {
        let State::Inflate { inflate, gzip } = &mut self.state else {
            return Ok(0);
        };
        let gzip = *gzip;
        let mut piece = [0; PIECE];
        let mut used = 0;
        loop {
            let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress(&bytes[used..], &mut piece, FlushDecompress::None);
            let taken = (inflate.total_in() - before_in) as usize;
            let made = (inflate.total_out() - before_out) as usize;
            used += taken;
            self.consumed += taken as u64;
            self.produced += made as u64;
            if made > 0 {
                sink(&piece[..made]);
            }
            if self.produced > FREE_OUTPUT + self.consumed * MAX_RATIO {
                self.state = State::Failed(EncodingError::Expansion);
                return Err(EncodingError::Expansion);
            }
            match status {
                Ok(Status::StreamEnd) => {
                    self.state = if gzip { State::Trailer(8) } else { State::Done };
                    return Ok(used);
                }
                Ok(Status::Ok | Status::BufError) => {
                    // A full piece may mean that more is ready; otherwise the input is what is missing.
                    if made < PIECE && (used == bytes.len() || taken + made == 0) {
                        if used < bytes.len() {
                            self.state = State::Failed(EncodingError::Corrupt);
                            return Err(EncodingError::Corrupt);
                        }
                        return Ok(used);
                    }
                }
                Err(_) => {
                    self.state = State::Failed(EncodingError::Corrupt);
                    return Err(EncodingError::Corrupt);
                }
            }
        }
    }
}
