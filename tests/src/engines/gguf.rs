//! Cuts a GGUF model to its first layers, tensors untouched.
//!
//! Owns: as much of the format (version 3, little-endian) as copying needs. Refuses: quantising.

use anyhow::{Context, Result, bail, ensure};

const ALIGNMENT_KEY: &str = "general.alignment";

/// The model in `bytes` with only its first `layers` layers.
pub(super) fn cut(bytes: &[u8], layers: u32) -> Result<Vec<u8>> {
    let mut input = Input { bytes, at: 0 };
    ensure!(input.take(4)? == b"GGUF", "no GGUF file");
    let version = input.u32()?;
    ensure!(version == 3, "GGUF version {version} is not known here");
    let tensors = input.u64()?;
    let pairs = input.u64()?;
    let mut metadata = Vec::new();
    let mut alignment = 32;
    for _ in 0..pairs {
        let start = input.at;
        let key = input.string()?.to_owned();
        let kind = input.u32()?;
        let value_start = input.at;
        input.skip_value(kind)?;
        metadata.extend_from_slice(&bytes[start..value_start]);
        if key.ends_with(".block_count") && kind == UINT32 {
            metadata.extend(layers.to_le_bytes());
        } else {
            metadata.extend_from_slice(&bytes[value_start..input.at]);
        }
        if key == ALIGNMENT_KEY && kind == UINT32 {
            alignment = u32::from_le_bytes(bytes[value_start..value_start + 4].try_into()?) as usize;
        }
    }
    ensure!(
        alignment.is_power_of_two(),
        "alignment {alignment} is no power of two"
    );
    let mut infos = Vec::new();
    for _ in 0..tensors {
        let name = input.string()?;
        let shape_start = input.at;
        let dimensions = input.u32()?;
        for _ in 0..dimensions {
            input.u64()?;
        }
        let kind_end = input.at + 4;
        input.u32()?;
        let offset = usize::try_from(input.u64()?)?;
        infos.push(Info {
            name,
            shape_and_kind: &bytes[shape_start..kind_end],
            offset,
        });
    }
    let data = bytes
        .get(input.at.next_multiple_of(alignment)..)
        .context("no tensor data")?;
    let mut ends: Vec<usize> = infos.iter().map(|info| info.offset).chain([data.len()]).collect();
    ends.sort_unstable();
    let kept: Vec<&Info<'_>> = infos
        .iter()
        .filter(|info| info.layer().is_none_or(|layer| layer < layers))
        .collect();

    let mut output = Vec::new();
    output.extend(b"GGUF");
    output.extend(version.to_le_bytes());
    output.extend((kept.len() as u64).to_le_bytes());
    output.extend(pairs.to_le_bytes());
    output.extend(metadata);
    let (mut offset, mut pieces) = (0, Vec::new());
    for info in kept {
        // Padding up to the next tensor travels along, so every offset stays aligned.
        let end = ends[ends.partition_point(|end| *end <= info.offset)];
        let piece = data
            .get(info.offset..end)
            .context("a tensor lies outside the file")?;
        output.extend((info.name.len() as u64).to_le_bytes());
        output.extend(info.name.as_bytes());
        output.extend(info.shape_and_kind);
        output.extend((offset as u64).to_le_bytes());
        offset += piece.len().next_multiple_of(alignment);
        pieces.push(piece);
    }
    for piece in pieces {
        output.resize(output.len().next_multiple_of(alignment), 0);
        output.extend_from_slice(piece);
    }
    Ok(output)
}

struct Info<'a> {
    name: &'a str,
    shape_and_kind: &'a [u8],
    offset: usize,
}

impl Info<'_> {
    /// `blk.N.…` is of layer N; other tensors are of none.
    fn layer(&self) -> Option<u32> {
        self.name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
    }
}

const UINT32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).context("a length overflows")?;
        let bytes = self.bytes.get(self.at..end).context("the file ends early")?;
        self.at = end;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }

    fn string(&mut self) -> Result<&'a str> {
        let length = usize::try_from(self.u64()?)?;
        Ok(std::str::from_utf8(self.take(length)?)?)
    }

    fn skip_value(&mut self, kind: u32) -> Result<()> {
        match kind {
            STRING => {
                let length = usize::try_from(self.u64()?)?;
                self.take(length)?;
            }
            ARRAY => {
                let element = self.u32()?;
                ensure!(element != ARRAY, "nested arrays are not known here");
                for _ in 0..self.u64()? {
                    self.skip_value(element)?;
                }
            }
            0 | 1 | 7 => drop(self.take(1)?),
            2 | 3 => drop(self.take(2)?),
            UINT32 | 5 | 6 => drop(self.take(4)?),
            10..=12 => drop(self.take(8)?),
            other => bail!("value type {other} is not known here"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
    }

    fn model(layers: u32) -> Vec<u8> {
        let names: Vec<String> = ["embd".to_owned()]
            .into_iter()
            .chain((0..layers).map(|n| format!("blk.{n}.w")))
            .collect();
        let mut out = b"GGUF\x03\0\0\0".to_vec();
        out.extend((names.len() as u64).to_le_bytes());
        out.extend(2u64.to_le_bytes());
        out.extend(
            [
                string("llama.block_count"),
                UINT32.to_le_bytes().to_vec(),
                layers.to_le_bytes().to_vec(),
            ]
            .concat(),
        );
        let tokens = [string("a"), string("bc")].concat();
        let head = [ARRAY.to_le_bytes(), STRING.to_le_bytes()].concat();
        out.extend([string("tokens"), head, 2u64.to_le_bytes().to_vec(), tokens].concat());
        for (at, name) in names.iter().enumerate() {
            out.extend(string(name));
            out.extend(1u32.to_le_bytes());
            out.extend(8u64.to_le_bytes());
            out.extend(0u32.to_le_bytes());
            out.extend((at as u64 * 32).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
        for at in 0..names.len() {
            out.extend([at as u8; 32]);
        }
        out
    }

    #[test]
    fn a_cut_model_is_the_model_with_fewer_layers() {
        assert_eq!(cut(&model(5), 2).unwrap(), model(2));
        assert_eq!(cut(&model(5), 9).unwrap().len(), model(5).len());
    }

    #[test]
    fn a_cut_off_file_is_an_error() {
        let whole = model(3);
        for length in [0, 3, 20, 60, 200] {
            assert!(cut(&whole[..length], 2).is_err(), "{length}");
        }
    }
}
