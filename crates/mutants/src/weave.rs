//! Writes mutants into a source text, each behind its question, and remembers where each came to stand.

use std::ops::Range;

use crate::sites::{Change, Site};

/// A site with the number under which it can be switched on.
#[derive(Clone, Copy, Debug)]
pub struct Numbered<'a> {
    pub id: u32,
    pub site: &'a Site,
}

#[derive(Debug, Default)]
pub struct Woven {
    pub text: String,
    pub marks: Vec<Mark>,
}

/// Where a mutant stands in the woven text.
#[derive(Clone, Debug)]
pub struct Mark {
    pub id: u32,
    /// Its own text: the mutated expression, or the statement that can be left out.
    pub own: Range<usize>,
    /// Everything at its place: the question, all mutants there, and the original.
    pub place: Range<usize>,
    pub skips: bool,
}

/// `sites` come in the order of [`crate::sites::find`].
pub fn weave(source: &str, sites: &[Numbered<'_>]) -> Woven {
    let mut weaver = Weaver { source, woven: Woven::default() };
    weaver.stretch(0..source.len(), sites);
    weaver.woven
}

struct Weaver<'a> {
    source: &'a str,
    woven: Woven,
}

impl Weaver<'_> {
    fn push(&mut self, text: &str) {
        self.woven.text.push_str(text);
    }

    fn stretch(&mut self, range: Range<usize>, sites: &[Numbered<'_>]) {
        let mut at = range.start;
        let mut rest = sites;
        while let Some(first) = rest.first() {
            let place = first.site.range.clone();
            let inside = rest.iter().take_while(|s| s.site.range.start < place.end).count();
            let (these, after) = rest.split_at(inside);
            self.push(&self.source[at..place.start]);
            self.place(&place, these);
            at = place.end;
            rest = after;
        }
        self.push(&self.source[at..range.end]);
    }

    /// All mutants of exactly this place around the original, in which those inside of it are woven in turn.
    fn place(&mut self, place: &Range<usize>, sites: &[Numbered<'_>]) {
        let here = sites.iter().take_while(|s| s.site.range == *place).count();
        let (here, inside) = sites.split_at(here);
        let start = self.woven.text.len();
        let skip = here.iter().find(|s| s.site.change == Change::Skip);
        if let Some(skip) = skip {
            self.push(&format!("{{ if !crate::mutant::is({}) {{ ", skip.id));
        }
        let own = self.woven.text.len();
        self.replacements(place, here, inside);
        if let Some(skip) = skip {
            let own = own..self.woven.text.len();
            self.push(" } }");
            self.mark(skip.id, own, true);
        }
        let end = self.woven.text.len();
        for mark in self.woven.marks.iter_mut().filter(|mark| here.iter().any(|s| s.id == mark.id)) {
            mark.place = start..end;
        }
    }

    fn replacements(&mut self, place: &Range<usize>, here: &[Numbered<'_>], inside: &[Numbered<'_>]) {
        let mut open = false;
        for numbered in here {
            let Change::Instead(text) = &numbered.site.change else { continue };
            let word = if open { " else if" } else { "(if" };
            open = true;
            self.push(&format!("{word} crate::mutant::is({}) {{ ", numbered.id));
            let own = self.woven.text.len();
            self.push(text);
            self.mark(numbered.id, own..own + text.len(), false);
            self.push(" }");
        }
        if open {
            self.push(" else { ");
        }
        self.stretch(place.clone(), inside);
        if open {
            self.push(" })");
        }
    }

    fn mark(&mut self, id: u32, own: Range<usize>, skips: bool) {
        self.woven.marks.push(Mark { id, place: own.clone(), own, skips });
    }
}

/// Who is to blame for an error at `spans` (the primary one first). In this order: the innermost mutant whose own text
/// holds one of them; everybody at the innermost place that holds the first; whatever can be left out inside of the
/// first; whatever can be left out between the others and the first (a `return` without which a value is used again).
pub fn blame(marks: &[Mark], spans: &[Range<usize>]) -> Vec<u32> {
    let holds =
        |outer: &Range<usize>, inner: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
    let skips_in = |range: &Range<usize>| -> Vec<u32> {
        marks.iter().filter(|mark| mark.skips && holds(range, &mark.place)).map(|mark| mark.id).collect()
    };
    let own = marks
        .iter()
        .filter(|mark| !mark.skips && spans.iter().any(|span| holds(&mark.own, span)))
        .min_by_key(|mark| mark.own.len());
    if let Some(mark) = own {
        return vec![mark.id];
    }
    let Some((primary, others)) = spans.split_first() else { return Vec::new() };
    let places = marks.iter().filter(|mark| holds(&mark.place, primary));
    if let Some(least) = places.clone().map(|mark| mark.place.len()).min() {
        return places.filter(|mark| mark.place.len() == least).map(|mark| mark.id).collect();
    }
    let inside = skips_in(primary);
    if !inside.is_empty() {
        return inside;
    }
    let before = others.iter().map(|span| span.end).filter(|end| *end <= primary.start).max();
    before.map(|end| skips_in(&(end..primary.start))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Numbered, Woven, blame, weave};
    use crate::sites;

    fn woven(source: &str) -> Woven {
        let sites = sites::find(source).unwrap();
        let numbered: Vec<_> = (1..).zip(&sites).map(|(id, site)| Numbered { id, site }).collect();
        weave(source, &numbered)
    }

    #[test]
    fn mutants_stand_behind_their_question_and_inside_each_other() {
        for (source, expect) in [
            ("fn f() { g(); }", "fn f() { { if !crate::mutant::is(1) { g(); } } }"),
            (
                "fn f() { a < b }",
                "fn f() { (if crate::mutant::is(1) { (a) <= (b) } else if crate::mutant::is(2) { (a) >= (b) } else { a < b }) }",
            ),
            (
                "fn f() { g(1); }",
                "fn f() { { if !crate::mutant::is(1) { g((if crate::mutant::is(2) { 2 } else { 1 })); } } }",
            ),
        ] {
            let text = woven(source).text;
            assert_eq!(text, expect);
            syn::parse_file(&text).unwrap();
        }
    }

    #[test]
    fn an_error_is_blamed_on_the_mutant_it_is_in() {
        let woven = woven("fn f() { let x = Some(a).filter(|x| *x < 1); }");
        let at = |text: &str| {
            let start = woven.text.find(text).unwrap();
            start..start + text.len()
        };
        let whole = 0..woven.text.len();
        assert_eq!(blame(&woven.marks, &[at("Some(a) }")].map(|r| r.start..r.end - 2)), vec![1]);
        assert_eq!(blame(&woven.marks, &[at("(*x) <= (1)")]).len(), 1);
        assert_eq!(
            blame(&woven.marks, &[whole.clone(), at("(*x) >= (1)")]).len(),
            1,
            "also by a second span"
        );
        assert_eq!(blame(&woven.marks, &[whole]), Vec::<u32>::new(), "there is no statement to leave out");
    }
}
