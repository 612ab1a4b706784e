//! Expands macros. `cel.bind`, `optMap` and `optFlatMap` become nodes of their own. The others
//! become loops with the same parts as in Kubernetes, and so the same cost.

use crate::ast::{ACCUMULATOR, Bind, Entry, Expr, Fold, Kind, Literal};
use crate::lexer::SyntaxError;

/// Name of the list in a `sortBy` expansion.
const SORTED: &str = "@sorted";

/// The fixed parts of a loop.
struct Loop {
    range: Expr,
    name: String,
    second: Option<String>,
    at: usize,
}

/// Expands a macro, or makes a plain call.
pub(crate) fn expand(
    name: &str,
    target: Option<Expr>,
    args: Vec<Expr>,
    at: usize,
) -> Result<Expr, SyntaxError> {
    let is_member = target.is_some();
    match (name, is_member, args.len()) {
        ("has", false, 1) => has(args, at),
        ("bind", true, 3) if target.as_ref().is_some_and(is_cel) => {
            Ok(Expr::new(Kind::Bind(Box::new(bind(None, args)?)), at))
        }
        ("optMap" | "optFlatMap", true, 2) => {
            let bind = Box::new(bind(target, args)?);
            Ok(Expr::new(Kind::OptMap { bind, is_flat: name == "optFlatMap" }, at))
        }
        ("sortBy", true, 2) => sort_by(target, args, at),
        ("all" | "exists" | "exists_one" | "filter", true, 2) | ("map", true, 2 | 3) => {
            let (each, parts) = one_variable(target, args, at)?;
            Ok(fold(name, each, parts))
        }
        ("all" | "exists" | "exists_one" | "existsOne", true, 3)
        | ("transformList" | "transformMap" | "transformMapEntry", true, 3 | 4) => {
            let (each, parts) = two_variables(target, args, at)?;
            Ok(fold(name, each, parts))
        }
        _ => Ok(Expr::new(
            Kind::Call { name: name.to_owned(), target: target.map(Box::new), args },
            at,
        )),
    }
}

fn is_cel(target: &Expr) -> bool {
    matches!(&target.kind, Kind::Ident(name) if name == "cel")
}

fn has(args: Vec<Expr>, at: usize) -> Result<Expr, SyntaxError> {
    match args.into_iter().next().map(|arg| arg.kind) {
        Some(Kind::Select(operand, field)) => Ok(Expr::new(Kind::Has(operand, field), at)),
        _ => Err(SyntaxError {
            at,
            why: "has() takes the selection of a field: has(a.b)".to_owned(),
        }),
    }
}

/// The identifier that an argument must be.
fn variable(arg: Expr) -> Result<String, SyntaxError> {
    match arg.kind {
        Kind::Ident(name) => Ok(name),
        _ => Err(SyntaxError {
            at: arg.at,
            why: "a macro's variable must be a plain name".to_owned(),
        }),
    }
}

/// The next argument; the number of arguments is already checked.
fn next(args: &mut impl Iterator<Item = Expr>, at: usize) -> Result<Expr, SyntaxError> {
    args.next().ok_or_else(|| SyntaxError { at, why: "a macro lacks an argument".to_owned() })
}

/// A name, its value (the target, if any) and its scope.
fn bind(target: Option<Expr>, args: Vec<Expr>) -> Result<Bind, SyntaxError> {
    let mut args = args.into_iter();
    let name = variable(next(&mut args, 0)?)?;
    let value = match target {
        Some(target) => target,
        None => next(&mut args, 0)?,
    };
    Ok(Bind { name, value, body: next(&mut args, 0)? })
}

fn one_variable(
    target: Option<Expr>,
    args: Vec<Expr>,
    at: usize,
) -> Result<(Loop, Vec<Expr>), SyntaxError> {
    let mut args = args.into_iter();
    let range = next(&mut target.into_iter(), at)?;
    let name = variable(next(&mut args, at)?)?;
    Ok((Loop { range, name, second: None, at }, args.collect()))
}

fn two_variables(
    target: Option<Expr>,
    args: Vec<Expr>,
    at: usize,
) -> Result<(Loop, Vec<Expr>), SyntaxError> {
    let mut args = args.into_iter();
    let range = next(&mut target.into_iter(), at)?;
    let name = variable(next(&mut args, at)?)?;
    let second = variable(next(&mut args, at)?)?;
    if name == second {
        let why = format!("a macro's variables are both named {name:?}");
        return Err(SyntaxError { at, why });
    }
    Ok((Loop { range, name, second: Some(second), at }, args.collect()))
}

/// The loop of a macro. `parts` are its arguments after the variables.
fn fold(macro_name: &str, each: Loop, mut parts: Vec<Expr>) -> Expr {
    let Loop { range, name, second, at } = each;
    let accumulator = || Expr::ident(ACCUMULATOR, at);
    let literal = |literal| Expr::literal(literal, at);
    let go_on = |while_true| Expr::call("@not_strictly_false", vec![while_true], at);
    let body = parts.pop().unwrap_or_else(accumulator);
    // A remaining argument is a filter.
    let filter = parts.pop();
    let filtered = |step| match filter {
        Some(filter) => Expr::new(Kind::Cond(Box::new([filter, step, accumulator()])), at),
        None => step,
    };
    let append = |element| {
        let list = Expr::new(Kind::List(vec![(false, element)]), at);
        Expr::call("_+_", vec![accumulator(), list], at)
    };
    let empty_list = || Expr::new(Kind::List(Vec::new()), at);
    let empty_map = || Expr::new(Kind::Map(Vec::<Entry>::new()), at);
    let always = || literal(Literal::Bool(true));
    let (init, condition, step, result) = match macro_name {
        "all" => (
            literal(Literal::Bool(true)),
            go_on(accumulator()),
            Expr::new(Kind::And(vec![accumulator(), body]), at),
            accumulator(),
        ),
        "exists" => (
            literal(Literal::Bool(false)),
            go_on(Expr::call("!_", vec![accumulator()], at)),
            Expr::new(Kind::Or(vec![accumulator(), body]), at),
            accumulator(),
        ),
        "exists_one" | "existsOne" => {
            let one = || literal(Literal::Int(1));
            let more = Expr::call("_+_", vec![accumulator(), one()], at);
            (
                literal(Literal::Int(0)),
                always(),
                Expr::new(Kind::Cond(Box::new([body, more, accumulator()])), at),
                Expr::call("_==_", vec![accumulator(), one()], at),
            )
        }
        "filter" => {
            let step = append(Expr::ident(&name, at));
            let step = Expr::new(Kind::Cond(Box::new([body, step, accumulator()])), at);
            (empty_list(), always(), step, accumulator())
        }
        "transformMap" => {
            let args = vec![accumulator(), Expr::ident(&name, at), body];
            (empty_map(), always(), filtered(Expr::call("@insert", args, at)), accumulator())
        }
        "transformMapEntry" => {
            let args = vec![accumulator(), body];
            (empty_map(), always(), filtered(Expr::call("@insert", args, at)), accumulator())
        }
        // map and transformList.
        _ => (empty_list(), always(), filtered(append(body)), accumulator()),
    };
    let fold = Fold { range, name, second, init, condition, step, result };
    Expr::new(Kind::Fold(Box::new(fold)), at)
}

/// `list.sortBy(x, key)`: sorts the list by the keys of its elements.
fn sort_by(target: Option<Expr>, args: Vec<Expr>, at: usize) -> Result<Expr, SyntaxError> {
    let list = next(&mut target.into_iter(), at)?;
    let (each, parts) = one_variable(Some(Expr::ident(SORTED, at)), args, at)?;
    let keys = fold("map", each, parts);
    let body = Expr::new(
        Kind::Call {
            name: "@sort_by_keys".to_owned(),
            target: Some(Box::new(Expr::ident(SORTED, at))),
            args: vec![keys],
        },
        at,
    );
    let bind = Bind { name: SORTED.to_owned(), value: list, body };
    Ok(Expr::new(Kind::Bind(Box::new(bind)), at))
}
