//! What is made of what. A mutation is small and looks like a slip of the hand.

use syn::BinOp;

/// What one binary operator is turned into: its neighbours and its negation.
pub fn binary(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["/"],
        BinOp::Div(_) => &["*"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        _ => &[],
    }
}

pub const fn assigns(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// What becomes of a method call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Becomes(&'static str),
    Negated,
    /// Only what it was called on is left.
    Dropped,
}

pub fn method(name: &str) -> Option<Method> {
    use Method::{Becomes, Dropped, Negated};
    Some(match name {
        "min" => Becomes("max"),
        "max" => Becomes("min"),
        "any" => Becomes("all"),
        "all" => Becomes("any"),
        "is_some" => Becomes("is_none"),
        "is_none" => Becomes("is_some"),
        "is_some_and" => Becomes("is_none_or"),
        "is_none_or" => Becomes("is_some_and"),
        "saturating_sub" => Becomes("saturating_add"),
        "saturating_add" => Becomes("saturating_sub"),
        "plus" => Becomes("minus"),
        "minus" => Becomes("plus"),
        "first" => Becomes("last"),
        "last" => Becomes("first"),
        "pop_first" => Becomes("pop_last"),
        "pop_last" => Becomes("pop_first"),
        "get_min" => Becomes("get_max"),
        "get_max" => Becomes("get_min"),
        "is_empty" | "contains" | "contains_key" | "eq_ignore_ascii_case" => Negated,
        "filter" | "clamp" | "or" | "or_else" => Dropped,
        _ => return None,
    })
}

/// Methods whose closure answers yes or no.
pub fn takes_predicate(method: &str) -> bool {
    matches!(
        method,
        "filter"
            | "any"
            | "all"
            | "find"
            | "take_while"
            | "skip_while"
            | "retain"
            | "is_some_and"
            | "is_none_or"
            | "position"
    )
}
