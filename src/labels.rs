//! Enums whose variants are known to operators by a word each.

/// Gives an enum without fields the word for each of its variants, and the lists of all of them, from one list.
/// One that is left out, or stands elsewhere than in the enum, does not compile.
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
