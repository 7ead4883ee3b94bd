//! "Did you mean": the nearest of the words that would have been right.

/// The candidate nearest to `word`, if one is near enough to be a likely slip of the hand.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4 && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edit distance, where `-`, `_` and nothing count as the same (`minInstances`, `min-instances`).
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    let b: Vec<char> = b.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, cb) in b.iter().enumerate() {
            let substitution = previous[j] + usize::from(ca != cb);
            row.push(substitution.min(previous[j + 1] + 1).min(row[j] + 1));
        }
        previous = row;
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let words = ["min_instances", "max_instances", "size", "tier", "x"];
        for (word, expected) in [
            ("min_instance", Some("min_instances")),
            ("maxInstances", Some("max_instances")),
            ("siz", Some("size")),
            ("teir", Some("tier")),
            ("colour", None),
            ("q", None),
        ] {
            assert_eq!(nearest(word, words), expected, "{word}");
        }
    }
}
