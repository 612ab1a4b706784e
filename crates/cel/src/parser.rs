//! Parses tokens into the syntax tree, by CEL's grammar (cel-spec `langdef.md`).
//!
//! Nesting and the depth of the tree are bounded, so that no text can exhaust the stack, neither
//! here nor in later passes.

use crate::ast::{Entry, Expr, Kind, Literal};
use crate::lexer::{self, SyntaxError, Token};
use crate::macros;

/// Limit of nested brackets and ternaries. (Kubernetes allows 250 of each grammar rule.)
const MAX_NESTING: usize = 64;

/// Limit of the tree's depth, including operators in a row and expanded macros.
const MAX_DEPTH: usize = 250;

/// Reserved words, which no variable or function may have as a name.
const RESERVED: [&str; 20] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
];

/// Parses an expression.
pub(crate) fn parse(source: &str) -> Result<Expr, SyntaxError> {
    let mut parser = Parser { tokens: lexer::tokens(source)?, next: 0, nesting: 0 };
    let expr = parser.expr()?;
    match parser.peek() {
        Token::End => Ok(expr),
        _ => Err(parser.unexpected("the end")),
    }
}

/// Tokens and the current position.
struct Parser {
    tokens: Vec<(usize, Token)>,
    next: usize,
    nesting: usize,
}

type Parsed<T = Expr> = Result<T, SyntaxError>;

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn peek_sign(&self) -> &'static str {
        match self.peek() {
            Token::Sign(sign) => sign,
            Token::Ident(name) if name == "in" => "in",
            _ => "",
        }
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_there = matches!(self.peek(), Token::Sign(found) if *found == sign);
        if is_there {
            self.advance();
        }
        is_there
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.take(sign) { Ok(()) } else { Err(self.unexpected(&format!("{sign:?}"))) }
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.peek() {
            Token::End => "the end".to_owned(),
            Token::Ident(name) => format!("{name:?}"),
            Token::Sign(sign) => format!("{sign:?}"),
            Token::Literal(_) | Token::LeastInt => "a literal".to_owned(),
        };
        SyntaxError { at: self.at(), why: format!("expected {wanted}, found {found}") }
    }

    /// A node, unless the tree becomes too deep.
    fn node(expr: Expr) -> Parsed {
        if expr.depth > MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} operations deep: simplify it");
            return Err(SyntaxError { at: expr.at, why });
        }
        Ok(expr)
    }

    fn operation(name: &str, args: Vec<Expr>, at: usize) -> Parsed {
        Self::node(Expr::call(name, args, at))
    }

    fn expr(&mut self) -> Parsed {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            let why = format!("more than {MAX_NESTING} brackets deep: simplify it");
            return Err(SyntaxError { at: self.at(), why });
        }
        let at = self.at();
        let condition = self.or()?;
        let expr = if self.take("?") {
            let yes = self.or()?;
            self.expect(":")?;
            let no = self.expr()?;
            Self::node(Expr::new(Kind::Cond(Box::new([condition, yes, no])), at))?
        } else {
            condition
        };
        self.nesting -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> Parsed {
        let at = self.at();
        let mut terms = vec![self.and()?];
        while self.take("||") {
            terms.push(self.and()?);
        }
        Self::joined(terms, Kind::Or, at)
    }

    fn and(&mut self) -> Parsed {
        let at = self.at();
        let mut terms = vec![self.binary(0)?];
        while self.take("&&") {
            terms.push(self.binary(0)?);
        }
        Self::joined(terms, Kind::And, at)
    }

    fn joined(mut terms: Vec<Expr>, join: fn(Vec<Expr>) -> Kind, at: usize) -> Parsed {
        match terms.pop() {
            Some(only) if terms.is_empty() => Ok(only),
            Some(last) => {
                terms.push(last);
                Self::node(Expr::new(join(terms), at))
            }
            None => Err(SyntaxError { at, why: "nothing to join".to_owned() }),
        }
    }

    /// Parses operators that bind at least as strongly as `level`.
    fn binary(&mut self, level: u8) -> Parsed {
        let at = self.at();
        let mut left = self.unary()?;
        while let Some((name, binds)) = operator(self.peek_sign()) {
            if binds < level {
                break;
            }
            self.advance();
            let right = self.binary(binds + 1)?;
            left = Self::operation(name, vec![left, right], at)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed {
        let at = self.at();
        let sign @ ("!" | "-") = self.peek_sign() else { return self.member(false) };
        let mut count = 0_usize;
        while self.take(sign) {
            count += 1;
        }
        let is_number = matches!(
            self.peek(),
            Token::LeastInt | Token::Literal(Literal::Int(_) | Literal::Double(_))
        );
        if sign == "-" && count == 1 && is_number {
            return self.member(true);
        }
        let operand = self.member(false)?;
        // An even number of signs cancels out.
        if count.is_multiple_of(2) {
            return Ok(operand);
        }
        Self::operation(if sign == "!" { "!_" } else { "-_" }, vec![operand], at)
    }

    fn member(&mut self, is_negative: bool) -> Parsed {
        let mut expr = self.primary(is_negative)?;
        loop {
            let at = self.at();
            if self.take("[") {
                let name = if self.take("?") { "_[?_]" } else { "_[_]" };
                let index = self.expr()?;
                self.expect("]")?;
                expr = Self::operation(name, vec![expr, index], at)?;
            } else if self.take(".") {
                let is_optional = self.take("?");
                let field = self.field()?;
                expr = if is_optional {
                    Self::node(Expr::new(Kind::OptSelect(Box::new(expr), field), at))?
                } else if self.take("(") {
                    let args = self.arguments()?;
                    Self::node(macros::expand(&field, Some(expr), args, at)?)?
                } else {
                    Self::node(Expr::new(Kind::Select(Box::new(expr), field), at))?
                };
            } else {
                return Ok(expr);
            }
        }
    }

    /// The name of a field or of a member function.
    fn field(&mut self) -> Parsed<String> {
        match self.peek().clone() {
            Token::Ident(name) if !matches!(&*name, "in" | "true" | "false" | "null") => {
                self.advance();
                Ok(name)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// Arguments up to the closing bracket.
    fn arguments(&mut self) -> Parsed<Vec<Expr>> {
        let mut args = Vec::new();
        if self.take(")") {
            return Ok(args);
        }
        loop {
            args.push(self.expr()?);
            if !self.take(",") {
                self.expect(")")?;
                return Ok(args);
            }
        }
    }

    fn primary(&mut self, is_negative: bool) -> Parsed {
        let at = self.at();
        let token = self.peek().clone();
        self.advance();
        let literal = match token {
            Token::LeastInt if is_negative => Literal::Int(i64::MIN),
            Token::LeastInt => {
                return Err(SyntaxError { at, why: "number is out of range".to_owned() });
            }
            Token::Literal(Literal::Int(number)) if is_negative => Literal::Int(-number),
            Token::Literal(Literal::Double(number)) if is_negative => Literal::Double(-number),
            Token::Literal(literal) => literal,
            Token::Ident(name) => match &*name {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "null" => Literal::Null,
                _ => return self.name(&name, at),
            },
            Token::Sign("(") => {
                let expr = self.expr()?;
                self.expect(")")?;
                return Ok(expr);
            }
            Token::Sign("[") => return self.list(at),
            Token::Sign("{") => return self.map(at),
            Token::Sign(".") => {
                let name = self.field()?;
                return self.name(&name, at);
            }
            Token::Sign(_) | Token::End => {
                self.next -= 1;
                return Err(self.unexpected("a value"));
            }
        };
        Ok(Expr::literal(literal, at))
    }

    /// A variable or the call of a global function.
    fn name(&mut self, name: &str, at: usize) -> Parsed {
        if RESERVED.contains(&name) {
            return Err(SyntaxError { at, why: format!("{name:?} is a reserved word") });
        }
        if self.take("(") {
            let args = self.arguments()?;
            return Self::node(macros::expand(name, None, args, at)?);
        }
        if matches!(self.peek(), Token::Sign("{")) {
            let why = format!("{name:?} is not a message type");
            return Err(SyntaxError { at, why });
        }
        Ok(Expr::ident(name, at))
    }

    fn list(&mut self, at: usize) -> Parsed {
        let mut elements = Vec::new();
        if self.take(",") {
            self.expect("]")?;
            return Self::node(Expr::new(Kind::List(elements), at));
        }
        while !self.take("]") {
            let is_optional = self.take("?");
            elements.push((is_optional, self.expr()?));
            if !self.take(",") {
                self.expect("]")?;
                break;
            }
        }
        Self::node(Expr::new(Kind::List(elements), at))
    }

    fn map(&mut self, at: usize) -> Parsed {
        let mut entries = Vec::new();
        if self.take(",") {
            self.expect("}")?;
            return Self::node(Expr::new(Kind::Map(entries), at));
        }
        while !self.take("}") {
            let is_optional = self.take("?");
            let key = self.expr()?;
            self.expect(":")?;
            entries.push(Entry { is_optional, key, value: self.expr()? });
            if !self.take(",") {
                self.expect("}")?;
                break;
            }
        }
        Self::node(Expr::new(Kind::Map(entries), at))
    }
}

/// CEL's internal name of a binary operator, and its precedence.
fn operator(sign: &str) -> Option<(&'static str, u8)> {
    Some(match sign {
        "==" => ("_==_", 0),
        "!=" => ("_!=_", 0),
        "<" => ("_<_", 0),
        "<=" => ("_<=_", 0),
        ">" => ("_>_", 0),
        ">=" => ("_>=_", 0),
        "in" => ("@in", 0),
        "+" => ("_+_", 1),
        "-" => ("_-_", 1),
        "*" => ("_*_", 2),
        "/" => ("_/_", 2),
        "%" => ("_%_", 2),
        _ => return None,
    })
}
