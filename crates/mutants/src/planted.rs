//! Code that is there for the simulator's planted bugs (`neap_core::planted`) is no part of what serves, and is not
//! mutated: a mutant in it would only plant or lose a bug that nobody has.

use syn::{BinOp, Expr, ExprMethodCall, UnOp};

/// `planted::is(…)`.
fn asks(expr: &Expr) -> bool {
    let Expr::Call(call) = expr else { return false };
    let Expr::Path(path) = &*call.func else { return false };
    let words: Vec<String> = path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    words.ends_with(&["planted".to_owned(), "is".to_owned()])
}

/// The question itself, or its negation.
pub fn is_question(expr: &Expr) -> bool {
    match expr {
        Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => asks(&unary.expr),
        Expr::Paren(paren) => is_question(&paren.expr),
        _ => asks(expr),
    }
}

/// True only when a bug is planted: what it guards is the bug.
pub fn only_when_planted(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(binary) if matches!(binary.op, BinOp::And(_)) => {
            only_when_planted(&binary.left) || only_when_planted(&binary.right)
        }
        Expr::Paren(paren) => only_when_planted(&paren.expr),
        _ => asks(expr),
    }
}

/// `.filter(|_| !planted::is(…))`: without a planted bug everything passes.
pub fn filters(call: &ExprMethodCall) -> bool {
    let body = call.args.first().and_then(|arg| match arg {
        Expr::Closure(closure) => Some(&*closure.body),
        _ => None,
    });
    call.method == "filter" && body.is_some_and(is_question)
}
