//! A struct that travels as an array.
//!
//! Owns: choosing the layout that fits (the number of fields, and the kind of value in each), and handing out the
//! fields. Refuses: what they mean.

use super::{
    ShapeError,
    layouts::{self, Layout, Struct, Use, Version},
};
use crate::wire::msgpack::{MsgpackError, Reader};

/// Takes one field. It must leave the reader behind the value.
pub(super) type Take<'t, 'a> = dyn FnMut(Use, &mut Reader<'a>) -> Result<(), ShapeError> + 't;

/// Reads one struct with the first layout that fits and whose fields `start` makes a `take` for. Answers whether the
/// message ended within it (`cut`: its end is known to be missing); fields before that were taken.
pub(super) fn read<'a, T>(
    reader: &mut Reader<'a>,
    of: Struct,
    release: Option<Version>,
    cut: bool,
    take: impl Fn(&mut T, Use, &mut Reader<'a>) -> Result<(), ShapeError>,
) -> Result<(T, bool), ShapeError>
where
    T: Default,
{
    let mut at_fields = *reader;
    let count = at_fields.array()?;
    // Every field is written, defaults too, so the right layout has exactly as many. A newer release may have appended.
    let fits = |layout: &Layout| {
        let known = layout.fields.len() as u64;
        u64::from(count) == known || (u64::from(count) > known && layouts::is_newest(of, layout))
    };
    let mut error = ShapeError::Fields(count);
    for layout in layouts::candidates(of, release).filter(|layout| fits(layout)) {
        let mut value = T::default();
        let mut here = at_fields;
        match read_fields(&mut here, layout, count, &mut |use_, reader| {
            take(&mut value, use_, reader)
        }) {
            Ok(()) => {
                *reader = here;
                return Ok((value, true));
            }
            Err(ShapeError::Msgpack(MsgpackError::Truncated)) if cut => {
                *reader = Reader::new(&[]);
                return Ok((value, false));
            }
            Err(other) => error = other,
        }
    }
    Err(error)
}

fn read_fields<'a>(
    reader: &mut Reader<'a>,
    layout: &Layout,
    count: u32,
    take: &mut Take<'_, 'a>,
) -> Result<(), ShapeError> {
    for index in 0..count {
        let Some(field) = layout.fields.get(index as usize) else {
            reader.skip()?;
            continue;
        };
        let found = reader.peek()?;
        if !field.kinds.contains(&found) {
            return Err(ShapeError::Field { index, found });
        }
        if field.use_ == Use::Nothing {
            reader.skip()?;
        } else {
            take(field.use_, reader)?;
        }
    }
    Ok(())
}

/// Reads a map with text keys: `take` answers whether it took the value; others are stepped over.
pub(super) fn map<'a>(
    reader: &mut Reader<'a>,
    mut take: impl FnMut(&str, &mut Reader<'a>) -> Result<bool, ShapeError>,
) -> Result<(), ShapeError> {
    for _ in 0..reader.map()? {
        let key = reader.str()?;
        if !take(key, reader)? {
            reader.skip()?;
        }
    }
    Ok(())
}

/// An integer that is never negative.
pub(super) fn count(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, ShapeError> {
    u64::try_from(reader.int()?).map_err(|_| ShapeError::Value(what))
}

/// A finite number that is never negative: a ratio or a time.
pub(super) fn number(reader: &mut Reader<'_>, what: &'static str) -> Result<f64, ShapeError> {
    let value = reader.float()?;
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(ShapeError::Value(what))
    }
}
