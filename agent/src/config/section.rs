//! `config_section!`: one declaration gives a section's struct, its defaults and the text that documents each key.
//!
//! Owns: the macro and the reflection over sections that printing, checking and the environment share. Refuses: the
//! sections themselves; each module declares its own, beside the code that uses it.

/// Documentation of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name within the section.
    pub name: &'static str,
    /// Lines of documentation: each starts with a space, as doc comments do.
    pub doc: &'static [&'static str],
}

/// What every section can tell about itself.
pub trait Section {
    /// Lines of documentation of the whole section.
    const DOC: &'static [&'static str];
    /// Its keys, in the order of declaration.
    const KEYS: &'static [Key];
}

/// Declares a section of the configuration:
///
/// ```
/// infertap::config_section! {
///     /// What the section is about.
///     pub struct ExampleConfig {
///         /// What the key does, its unit and its range.
///         pub workers: u32 = 4,
///     }
/// }
/// use infertap::config::Section;
/// assert_eq!(ExampleConfig::default().workers, 4);
/// assert_eq!(ExampleConfig::KEYS[0].name, "workers");
/// ```
///
/// The struct is `Serialize` and `Deserialize`, refuses unknown keys, and takes absent ones from its defaults. A key
/// whose documentation is missing does not compile.
#[macro_export]
macro_rules! config_section {
    (
        $(#[doc = $section_doc:literal])+
        $vis:vis struct $section:ident {
            $(
                $(#[doc = $doc:literal])+
                $field_vis:vis $field:ident : $ty:ty = $default:expr,
            )*
        }
    ) => {
        $(#[doc = $section_doc])+
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        $vis struct $section {
            $(
                $(#[doc = $doc])+
                $field_vis $field: $ty,
            )*
        }

        impl Default for $section {
            fn default() -> Self {
                $section { $($field: $default,)* }
            }
        }

        impl $crate::config::Section for $section {
            const DOC: &'static [&'static str] = &[$($section_doc),+];
            const KEYS: &'static [$crate::config::Key] = &[
                $($crate::config::Key { name: stringify!($field), doc: &[$($doc),+] },)*
            ];
        }
    };
}
