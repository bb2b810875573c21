//! Lists cut into their items while they come: a list of all pods of a large cluster is gigabytes.
//!
//! Owns: finding the items of a list object (`{"metadata":{…},"items":[…]}`, in any order of members) in pieces of its
//! text. Refuses: what is in an item, and more than one item at a time in memory.

use super::Reason;

/// Longest item, bytes. An object of Kubernetes is of at most 1.5 MiB in its store, and somewhat longer as JSON.
pub(super) const MAX_ITEM: usize = 8 << 20;
/// Longest rest of a list, bytes.
const MAX_REST: usize = 64 << 10;

/// Cuts one list.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// Objects and arrays that are open.
    depth: u32,
    in_text: bool,
    escaped: bool,
    /// The items are being read: between the brackets.
    in_items: bool,
    /// Where the last text of the outermost object began in `rest`.
    text_from: usize,
    /// That text, while it may be the name of a member.
    named_items: bool,
    item: Vec<u8>,
    skipping: bool,
    /// The list without its items.
    rest: Vec<u8>,
}

impl Items {
    /// The next piece of text; `take` gets each item that is complete, or `None` for one that is too long.
    ///
    /// # Errors
    /// It is no such list.
    pub(super) fn feed(&mut self, bytes: &[u8], take: &mut dyn FnMut(Option<&[u8]>)) -> Result<(), Reason> {
        for &byte in bytes {
            // Within an item, or between items.
            if self.in_items {
                self.within(byte, take);
            } else {
                self.outside(byte)?;
            }
        }
        Ok(())
    }

    /// All text was told: the list without its items.
    ///
    /// # Errors
    /// It broke off.
    pub(super) fn end(&self) -> Result<&[u8], Reason> {
        if self.depth > 0 || self.rest.is_empty() {
            return Err(Reason::Malformed);
        }
        Ok(&self.rest)
    }

    fn outside(&mut self, byte: u8) -> Result<(), Reason> {
        if self.rest.len() >= MAX_REST {
            return Err(Reason::Oversize);
        }
        self.rest.push(byte);
        if self.in_text {
            self.text(byte);
            if !self.in_text && self.depth == 1 {
                self.named_items = self
                    .rest
                    .get(self.text_from..)
                    .is_some_and(|text| text == b"\"items\"");
            }
            return Ok(());
        }
        match byte {
            b'"' => {
                self.in_text = true;
                self.text_from = self.rest.len() - 1;
            }
            b'[' if self.depth == 1 && self.named_items => {
                self.in_items = true;
                self.depth += 1;
            }
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.checked_sub(1).ok_or(Reason::Malformed)?,
            b',' => self.named_items = false,
            _ => {}
        }
        Ok(())
    }

    fn within(&mut self, byte: u8, take: &mut dyn FnMut(Option<&[u8]>)) {
        if self.depth == 2 && !self.in_text {
            match byte {
                b'{' => {
                    self.item.clear();
                    self.skipping = false;
                }
                b']' => {
                    self.rest.push(byte);
                    self.in_items = false;
                    self.named_items = false;
                    self.depth = 1;
                    // An item may have been long.
                    self.item = Vec::new();
                    return;
                }
                // What stands here beside objects, commas and space is no item; whatever follows is judged for itself.
                _ => return,
            }
        }
        if self.item.len() >= MAX_ITEM {
            self.skipping = true;
        } else {
            self.item.push(byte);
        }
        if self.in_text {
            self.text(byte);
            return;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                // At least 3 within an item.
                self.depth -= 1;
                if self.depth == 2 {
                    take((!self.skipping).then_some(&*self.item));
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_text = false,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(text: &[u8], piece: usize) -> Result<(Vec<String>, String), Reason> {
        let (mut items, mut found) = (Items::default(), Vec::new());
        for piece in text.chunks(piece.max(1)) {
            items.feed(piece, &mut |item| {
                found.push(item.map_or("too long".to_owned(), |item| {
                    String::from_utf8_lossy(item).into_owned()
                }));
            })?;
        }
        let rest = String::from_utf8_lossy(items.end()?).into_owned();
        Ok((found, rest))
    }

    #[test]
    fn items_are_found_wherever_they_stand_and_however_they_are_cut() {
        for (text, items, rest) in [
            (r#"{"items":[]}"#, vec![], r#"{"items":[]}"#),
            (
                r#"{"a":"items","items":[{"x":[1,{"y":"]}"}]} , {}]}"#,
                vec![r#"{"x":[1,{"y":"]}"}]}"#, "{}"],
                r#"{"a":"items","items":[]}"#,
            ),
            (
                r#"{"m":{"items":[{}]},"items":[{"q":"\"}"}],"z":1}"#,
                vec![r#"{"q":"\"}"}"#],
                r#"{"m":{"items":[{}]},"items":[],"z":1}"#,
            ),
            (r#"{"items":null,"z":[{}]}"#, vec![], r#"{"items":null,"z":[{}]}"#),
            (r#"{"x":"items","y":[{}]}"#, vec![], r#"{"x":"items","y":[{}]}"#),
        ] {
            for piece in 1..=text.len() {
                let found = cut(text.as_bytes(), piece).unwrap();
                assert_eq!(
                    (found.0, &*found.1),
                    (items.iter().map(|&item| item.to_owned()).collect(), rest),
                    "{piece}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_list_is_refused_and_what_is_too_long_is_skipped() {
        for (text, reason) in [
            ("", Reason::Malformed),
            (r#"{"items":[{"#, Reason::Malformed),
            ("}", Reason::Malformed),
            (r#"{"items":[]"#, Reason::Malformed),
        ] {
            assert_eq!(cut(text.as_bytes(), 7), Err(reason), "{text}");
        }
        let long = format!(r#"{{"x":"{}"#, "y".repeat(MAX_REST));
        assert_eq!(cut(long.as_bytes(), 4096), Err(Reason::Oversize));
        let long = format!(r#"{{"items":[{{"x":"{}"}},{{"a":1}}]}}"#, "y".repeat(MAX_ITEM));
        assert_eq!(
            cut(long.as_bytes(), 65_536).unwrap().0,
            ["too long", r#"{"a":1}"#]
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in prop::collection::vec(prop::sample::select(b"{}[]\"\\,:items1 ".to_vec()), 0..200), piece in 1usize..20) {
            let mut full = br#"{"items":["#.to_vec();
            full.extend(&text);
            let _ = cut(&text, piece);
            let whole = cut(&full, full.len());
            prop_assert_eq!(cut(&full, piece), whole, "however it is cut");
        }
    }
}
