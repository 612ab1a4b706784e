use std::fmt::{self, Write};

/// Text that is safe in HTML, between tags and within quoted attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                // These are invalid in HTML, or could disguise a name by changing the text
                // direction.
                '\u{0}'..='\u{1f}'
                | '\u{7f}'..='\u{9f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => out.write_char('\u{fffd}')?,
                other => out.write_char(other)?,
            }
        }
        Ok(())
    }
}
