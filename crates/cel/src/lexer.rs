//! Splits text into tokens.

mod text;

use crate::ast::Literal;

/// A token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// An unsigned number, text or bytes.
    Literal(Literal),
    /// 9223372036854775808, which is an int only after a minus sign.
    LeastInt,
    /// A name or a reserved word, such as `true` and `in`.
    Ident(String),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// A syntax error at an offset in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// Offset.
    pub(crate) at: usize,
    /// Description.
    pub(crate) why: String,
}

/// Operators and brackets, longer ones first.
const SIGNS: [&str; 24] = [
    "&&", "||", "==", "!=", "<=", ">=", "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-",
    "+", "*", "/", "%", "<", ">",
];

/// All tokens with their offsets; the last is [`Token::End`].
pub(crate) fn tokens(source: &str) -> Result<Vec<(usize, Token)>, SyntaxError> {
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        let token = lexer.token()?;
        let is_end = token == Token::End;
        tokens.push((at, token));
        if is_end {
            return Ok(tokens);
        }
    }
}

/// The text and the current offset.
struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    /// Consumes characters that match.
    fn take_while(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !fits(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Consumes a prefix, if present.
    fn take(&mut self, prefix: &str) -> bool {
        let is_there = self.rest().starts_with(prefix);
        if is_there {
            self.at += prefix.len();
        }
        is_there
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n' | '\x0c'));
            if !self.take("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, SyntaxError> {
        let at = self.at;
        let rest = self.rest();
        let mut characters = rest.chars();
        let (Some(first), second) = (characters.next(), characters.next()) else {
            return Ok(Token::End);
        };
        if first.is_ascii_digit() || (first == '.' && second.is_some_and(|c| c.is_ascii_digit())) {
            return self.number();
        }
        if let Some((prefix, quote)) = text::opening(rest) {
            let (literal, len) = text::literal(rest, prefix, quote)
                .map_err(|why| SyntaxError { at, why: why.to_owned() })?;
            self.at += len;
            return Ok(Token::Literal(literal));
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Token::Ident(name.to_owned()));
        }
        for sign in SIGNS {
            if self.take(sign) {
                return Ok(Token::Sign(sign));
            }
        }
        Err(SyntaxError { at, why: format!("character {first:?} is not expected here") })
    }

    fn number(&mut self) -> Result<Token, SyntaxError> {
        let at = self.at;
        let error = |why: &str| SyntaxError { at, why: why.to_owned() };
        let has_hex_digit = |rest: &str| {
            rest.strip_prefix("0x")
                .is_some_and(|hex| hex.starts_with(|c: char| c.is_ascii_hexdigit()))
        };
        if has_hex_digit(self.rest()) {
            self.at += 2;
            let digits = self.take_while(|c| c.is_ascii_hexdigit());
            return self.whole(digits, 16).ok_or_else(|| error("number is out of range"));
        }
        let digits = self.take_while(|c| c.is_ascii_digit());
        let mut is_whole = true;
        let fraction = self.rest().strip_prefix('.').unwrap_or_default();
        if fraction.starts_with(|c: char| c.is_ascii_digit()) {
            self.at += 1;
            self.take_while(|c| c.is_ascii_digit());
            is_whole = false;
        }
        if let Some(exponent) = self.rest().strip_prefix(['e', 'E']) {
            let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if unsigned.starts_with(|c: char| c.is_ascii_digit()) {
                self.at += 1 + exponent.len() - unsigned.len();
                self.take_while(|c| c.is_ascii_digit());
                is_whole = false;
            }
        }
        if is_whole {
            return self.whole(digits, 10).ok_or_else(|| error("number is out of range"));
        }
        let text = self.source.get(at..self.at).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Token::Literal(Literal::Double(number))),
            _ => Err(error("number is out of range")),
        }
    }

    /// The integer of consumed digits; `None` if it is out of range.
    fn whole(&mut self, digits: &str, radix: u32) -> Option<Token> {
        if self.take("u") || self.take("U") {
            let number = u64::from_str_radix(digits, radix).ok()?;
            return Some(Token::Literal(Literal::Uint(number)));
        }
        let number = u64::from_str_radix(digits, radix).ok()?;
        if number == i64::MIN.unsigned_abs() {
            return Some(Token::LeastInt);
        }
        Some(Token::Literal(Literal::Int(i64::try_from(number).ok()?)))
    }
}
