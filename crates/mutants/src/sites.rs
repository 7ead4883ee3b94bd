//! Finds every place of a source that can be mutated, and what it becomes there. Reads; never writes.
//!
//! Constants, patterns, types, attributes and tests are left alone, and so is text inside of macros other than
//! `vec!` and `matches!`.

use std::ops::Range;

use proc_macro2::Span;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, Item, Lit, Pat, Stmt, Token, UnOp};

use crate::operators::{self, Method};
use crate::planted;

/// One possible fault in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Bytes of the source.
    pub range: Range<usize>,
    pub line: usize,
    pub operator: &'static str,
    pub change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The expression is replaced by this text.
    Instead(String),
    /// The statement, or the expression without a value, is left out.
    Skip,
}

/// Every site, in the order of the source.
pub fn find(source: &str) -> syn::Result<Vec<Site>> {
    let file = syn::parse_file(source)?;
    let mut finder = Finder { source, found: Vec::new() };
    finder.visit_file(&file);
    let mut found = finder.found;
    // Outer before inner; what is at the same place stays in the order it was found.
    found.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok(found)
}

struct Finder<'a> {
    source: &'a str,
    found: Vec<Site>,
}

impl Finder<'_> {
    fn text(&self, span: Span) -> &str {
        &self.source[span.byte_range()]
    }

    fn add(&mut self, span: Span, operator: &'static str, change: Change) {
        self.found.push(Site { range: span.byte_range(), line: span.start().line, operator, change });
    }

    fn instead(&mut self, span: Span, operator: &'static str, text: impl Into<String>) {
        self.add(span, operator, Change::Instead(text.into()));
    }

    /// Something that is asked: always yes, always no. Of a let-chain, what is no `let`.
    fn condition(&mut self, expr: &Expr) {
        match expr {
            Expr::Let(_) | Expr::Lit(_) => {}
            _ if planted::is_question(expr) => {}
            Expr::Binary(binary)
                if has_let(expr)
                    || planted::is_question(&binary.left)
                    || planted::is_question(&binary.right) =>
            {
                self.condition(&binary.left);
                self.condition(&binary.right);
            }
            _ => {
                self.instead(expr.span(), "condition", "true");
                self.instead(expr.span(), "condition", "false");
            }
        }
    }

    fn binary(&mut self, binary: &syn::ExprBinary) {
        let planted = planted::is_question(&binary.left) || planted::is_question(&binary.right);
        if !planted && !has_let(&binary.left) && !has_let(&binary.right) {
            let (left, right) = (self.text(binary.left.span()), self.text(binary.right.span()));
            let mutated: Vec<String> = operators::binary(&binary.op)
                .iter()
                .map(|op| {
                    if operators::assigns(&binary.op) {
                        format!("{left} {op} {right}")
                    } else {
                        format!("({left}) {op} ({right})")
                    }
                })
                .collect();
            for text in mutated {
                self.instead(binary.span(), "operator", text);
            }
        }
        // What is assigned to is a place, not a value.
        if !operators::assigns(&binary.op) {
            self.visit_expr(&binary.left);
        }
        self.visit_expr(&binary.right);
    }

    fn method(&mut self, call: &syn::ExprMethodCall) {
        let name = call.method.to_string();
        let whole = call.span();
        match operators::method(&name) {
            Some(Method::Becomes(other)) => {
                let (range, word) = (whole.byte_range(), call.method.span().byte_range());
                let text = format!(
                    "{}{other}{}",
                    &self.source[range.start..word.start],
                    &self.source[word.end..range.end]
                );
                self.instead(whole, "method", text);
            }
            Some(Method::Negated) => {
                let text = format!("!({})", self.text(whole));
                self.instead(whole, "method", text);
            }
            Some(Method::Dropped) => {
                let text = self.text(call.receiver.span()).to_owned();
                self.instead(whole, "method", text);
            }
            None => {}
        }
        if operators::takes_predicate(&name)
            && let Some(Expr::Closure(closure)) = call.args.first()
            && !matches!(*closure.body, Expr::Block(_))
        {
            self.condition(&closure.body);
        }
    }

    fn literal(&mut self, literal: &syn::ExprLit) {
        match &literal.lit {
            Lit::Bool(flag) => {
                self.instead(literal.span(), "literal", if flag.value { "false" } else { "true" });
            }
            Lit::Int(number) => {
                if let Ok(value) = number.base10_parse::<u128>() {
                    self.instead(literal.span(), "literal", format!("{}{}", value + 1, number.suffix()));
                }
            }
            _ => {}
        }
    }

    fn statement(&mut self, expr: &Expr, whole: Span) {
        match expr {
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => {
                self.add(whole, "jump deleted", Change::Skip);
            }
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) | Expr::Try(_) => {
                self.add(whole, "statement deleted", Change::Skip);
            }
            Expr::Binary(binary) if operators::assigns(&binary.op) => {
                self.add(whole, "statement deleted", Change::Skip);
            }
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}

    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            Item::Const(_) | Item::Static(_) | Item::Macro(_) => {}
            Item::Mod(module) if module.attrs.iter().any(is_cfg) => {}
            Item::Fn(function) if function.attrs.iter().any(is_cfg) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_signature(&mut self, _: &'ast syn::Signature) {}

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() {
            visit::visit_impl_item_fn(self, function);
        }
    }

    /// Patterns choose; only what an arm asks besides is mutated.
    fn visit_pat(&mut self, pat: &'ast Pat) {
        if let Pat::Guard(guard) = pat {
            self.condition(&guard.guard);
            self.visit_expr(&guard.guard);
        }
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if matches!(&arm.pat, Pat::Guard(guard) if planted::only_when_planted(&guard.guard)) {
            return;
        }
        if matches!(*arm.body, Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_)) {
            self.add(arm.body.span(), "statement deleted", Change::Skip);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        if let Stmt::Expr(expr, Some(_)) = stmt {
            self.statement(expr, stmt.span());
        }
        visit::visit_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            _ if planted::is_question(expr) || planted::only_when_planted(expr) => return,
            Expr::MethodCall(call) if planted::filters(call) => return self.visit_expr(&call.receiver),
            Expr::Binary(binary) => return self.binary(binary),
            Expr::Assign(assign) => return self.visit_expr(&assign.right),
            Expr::If(branch) if planted::only_when_planted(&branch.cond) => {
                if let Some((_, other)) = &branch.else_branch {
                    self.visit_expr(other);
                }
                return;
            }
            Expr::If(branch) => self.condition(&branch.cond),
            // A loop that never ends says nothing about the tests.
            Expr::While(repeat) if !has_let(&repeat.cond) => {
                self.instead(repeat.cond.span(), "condition", "false");
            }
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let text = self.text(unary.expr.span()).to_owned();
                self.instead(unary.span(), "negation dropped", text);
            }
            Expr::Lit(literal) => self.literal(literal),
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Some")) => {
                self.instead(call.span(), "value dropped", "None");
            }
            Expr::MethodCall(call) => self.method(call),
            Expr::Closure(closure) if matches!(*closure.body, Expr::Assign(_)) => {
                self.add(closure.body.span(), "statement deleted", Change::Skip);
            }
            Expr::Macro(mac) if mac.mac.path.is_ident("matches") => {
                let text = format!("!{}", self.text(mac.span()));
                self.instead(mac.span(), "method", text);
            }
            Expr::Macro(mac) if mac.mac.path.is_ident("vec") => {
                let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
                if let Ok(items) = mac.mac.parse_body_with(parser) {
                    for item in &items {
                        self.visit_expr(item);
                    }
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expr);
    }
}

fn is_cfg(attribute: &syn::Attribute) -> bool {
    attribute.path().is_ident("cfg") || attribute.path().is_ident("test")
}

/// `let` may stand here: such a chain cannot be put into brackets.
fn has_let(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, find};

    /// `original → mutated` of every site of a function's body.
    fn mutants(body: &str) -> Vec<String> {
        let source = format!("fn f() {{ {body} }}");
        find(&source)
            .unwrap()
            .into_iter()
            .map(|site| {
                let mutated = match site.change {
                    Change::Instead(text) => text,
                    Change::Skip => String::from("-"),
                };
                format!("{} → {mutated}", &source[site.range])
            })
            .collect()
    }

    #[test]
    fn each_kind_of_expression_has_its_mutants() {
        let cases: [(&str, &[&str]); 16] = [
            ("a == b", &["a == b → (a) != (b)"]),
            ("a < b", &["a < b → (a) <= (b)", "a < b → (a) >= (b)"]),
            ("a && b", &["a && b → (a) || (b)"]),
            ("let x = !a;", &["!a → a"]),
            ("let x = 7_u32;", &["7_u32 → 8u32"]),
            ("let x = Some(a);", &["Some(a) → None"]),
            ("if a {}", &["a → true", "a → false"]),
            ("if let Some(x) = a && b {}", &["b → true", "b → false"]),
            ("match a { Some(1) if b => c, _ => d }", &["b → true", "b → false"]),
            ("a.push(b);", &["a.push(b); → -"]),
            ("a.b = c;", &["a.b = c; → -"]),
            ("match a { b => c(), }", &["c() → -"]),
            ("return a;", &["return a; → -"]),
            ("let x = a.min(b);", &["a.min(b) → a.max(b)"]),
            ("let x = a.filter(|x| x.b);", &["a.filter(|x| x.b) → a", "x.b → true", "x.b → false"]),
            ("let x = vec![A { b: true }];", &["true → false"]),
        ];
        for (body, expect) in cases {
            assert_eq!(mutants(body), expect, "{body}");
        }
    }

    #[test]
    fn what_does_not_serve_is_left_alone() {
        for source in [
            "const N: u32 = 1 + 2;",
            "const fn f() -> bool { 1 < 2 }",
            "fn f(a: [u8; 4]) { let [_, 1, ..] = a else { panic!() }; }",
            "#[cfg(test)] mod tests { fn f() { g(1); } }",
            "fn f() { if planted::is(Bug::Any) { g(1); } }",
            "fn f() { match a { _ if planted::is(Bug::Any) => g(1), b => b } }",
            "fn f() { let x = planted::is(Bug::Any) && g() == 1; }",
            "fn f() { let x = a.filter(|_| !planted::is(Bug::Any)); }",
        ] {
            assert_eq!(find(source).unwrap(), vec![], "{source}");
        }
    }
}
