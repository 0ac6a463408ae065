//! Enums whose variants operators know by a word each.

/// Gives a fieldless enum a word for each variant and the lists of all variants, from one list. A
/// variant that is missing, or not in the enum's order, does not compile.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        impl $name {
            /// All of them; later versions may have more.
            pub const ALL: &'static [Self] = &Self::EACH;

            /// The same with their number, for what is kept of each in its place, `variant as usize`.
            pub(crate) const EACH: [Self; [$($word),+].len()] = {
                let each = [$(Self::$variant),+];
                let mut place = 0;
                while place < each.len() {
                    assert!(each[place] as usize == place);
                    place += 1;
                }
                each
            };

            $(#[$about])*
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }
        }
    };
}
pub(crate) use labels;

/// Shows each of these enums as its word.
macro_rules! shown_as_labels {
    ($($name:ident)+) => {$(
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}
pub(crate) use shown_as_labels;
