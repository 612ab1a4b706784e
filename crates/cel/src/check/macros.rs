//! Checks loops, bound names and optionals, the expansions of macros.

use super::{Checker, Found, Node, SyntaxError, Type, error};
use crate::ast::{ACCUMULATOR, Bind, Expr, Fold, Kind};
use crate::node::{self, Step};

impl Checker {
    /// Checks an expression with variables in scope.
    fn within<T>(
        &mut self,
        names: Vec<(String, Type)>,
        check: impl FnOnce(&mut Self) -> Result<T, SyntaxError>,
    ) -> Result<T, SyntaxError> {
        let before = self.locals.len();
        self.locals.extend(names);
        let checked = check(self);
        self.locals.truncate(before);
        checked
    }

    pub(super) fn fold(&mut self, fold: &Fold) -> Found {
        let (range, range_type) = self.expr(&fold.range)?;
        let (init, accumulated) = self.expr(&fold.init)?;
        let (first, second) = self.elements(&range_type, fold)?;
        let accumulator = vec![(ACCUMULATOR.to_owned(), accumulated.clone())];
        let mut elements = vec![(fold.name.clone(), first)];
        elements.extend(fold.second.clone().zip(second));
        let (condition, step, result, found) = self.within(accumulator, |checker| {
            let (condition, step) = checker.within(elements, |checker| {
                let condition = checker.bool(&fold.condition)?;
                let (step, found) = checker.step(&fold.step)?;
                if !checker.unifier.fit(&accumulated, &found) {
                    let (a, b) = (checker.settled(&accumulated), checker.settled(&found));
                    return error(fold.step.at, format!("a loop yields {b} where {a} is wanted"));
                }
                Ok((condition, step))
            })?;
            let (result, found) = checker.expr(&fold.result)?;
            Ok((condition, step, result, found))
        })?;
        let has_second = fold.second.is_some();
        let node = node::Fold { range, has_second, init, condition, step, result };
        Ok((Node::Fold(Box::new(node)), self.unifier.resolve(&found)))
    }

    /// Types of a loop's variables.
    fn elements(&mut self, range: &Type, fold: &Fold) -> Result<(Type, Option<Type>), SyntaxError> {
        match self.unifier.resolve(range) {
            Type::List(element) if fold.second.is_some() => {
                Ok((super::types::INT, Some((*element).clone())))
            }
            Type::List(element) => Ok(((*element).clone(), None)),
            Type::Map(key, value) => Ok(((*key).clone(), Some((*value).clone()))),
            Type::Dyn => Ok((Type::Dyn, Some(Type::Dyn))),
            open @ Type::Variable(_) => {
                self.unifier.fit(&Type::Dyn, &open);
                Ok((Type::Dyn, Some(Type::Dyn)))
            }
            other => {
                error(fold.range.at, format!("a macro goes through a list or map, not {other}"))
            }
        }
    }

    /// The step of a loop. Appending to a list happens in place.
    fn step(&mut self, step: &Expr) -> Result<(Step, Type), SyntaxError> {
        let is_accumulator = |expr: &Expr| matches!(&expr.kind, Kind::Ident(n) if n == ACCUMULATOR);
        let (filter, append) = match &step.kind {
            Kind::Cond(parts) => match &**parts {
                [filter, append, otherwise] if is_accumulator(otherwise) => (Some(filter), append),
                _ => (None, step),
            },
            _ => (None, step),
        };
        let Kind::Call { name, target: None, args } = &append.kind else {
            return self.expr(step).map(|(node, found)| (Step::Next(node), found));
        };
        let (accumulator, list) = match &**args {
            [accumulator, list] if name == "_+_" && is_accumulator(accumulator) => {
                (accumulator, list)
            }
            _ => return self.expr(step).map(|(node, found)| (Step::Next(node), found)),
        };
        let Kind::List(elements) = &list.kind else {
            return self.expr(step).map(|(node, found)| (Step::Next(node), found));
        };
        let [(false, element)] = &**elements else {
            return self.expr(step).map(|(node, found)| (Step::Next(node), found));
        };
        let filter = filter.map(|filter| self.bool(filter)).transpose()?;
        let (_, list_type) = self.expr(accumulator)?;
        let (element, element_type) = self.expr(element)?;
        let appended = Type::list(element_type);
        if !self.unifier.fit(&list_type, &appended) {
            return error(step.at, "a loop's elements differ in type");
        }
        Ok((Step::Append { filter, element }, list_type))
    }

    pub(super) fn bind(&mut self, bind: &Bind) -> Found {
        let (value, found) = self.expr(&bind.value)?;
        let names = vec![(bind.name.clone(), found)];
        let (body, found) = self.within(names, |checker| checker.expr(&bind.body))?;
        Ok((Node::Bind(Box::new([value, body])), self.unifier.resolve(&found)))
    }

    pub(super) fn opt_map(&mut self, bind: &Bind, is_flat: bool) -> Found {
        let (target, target_type) = self.expr(&bind.value)?;
        let value = self.unifier.fresh();
        if !self.unifier.fit(&target_type, &Type::optional(value.clone())) {
            let found = self.settled(&target_type);
            return error(bind.value.at, format!("optMap() is called on an optional, not {found}"));
        }
        let names = vec![(bind.name.clone(), self.unifier.resolve(&value))];
        let (body, found) = self.within(names, |checker| checker.expr(&bind.body))?;
        let result = if is_flat {
            let inner = self.unifier.fresh();
            if !self.unifier.fit(&found, &Type::optional(inner)) {
                let found = self.settled(&found);
                return error(
                    bind.body.at,
                    format!("optFlatMap() yields an optional, not {found}"),
                );
            }
            found
        } else {
            Type::optional(found)
        };
        let parts = Box::new([target, body]);
        Ok((Node::OptMap { parts, is_flat }, self.unifier.resolve(&result)))
    }
}
