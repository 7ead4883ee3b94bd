//! Series of sizes that Azure has retired: no cluster is created on them, and an older one says what to move to.

/// A series that is no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retired {
    pub series: &'static str,
    pub since: &'static str,
    /// A size that does its work today.
    pub instead: &'static str,
}

impl Retired {
    /// What to say of a size of it.
    pub fn sentence(&self, size: &str) -> String {
        format!(
            "The VM size '{size}' is of the {} series, which was retired on {}; use for example {}.",
            self.series, self.since, self.instead
        )
    }
}

const fn gpu(series: &'static str, instead: &'static str) -> Retired {
    Retired { series, since: "2023-08-31", instead }
}

/// The series that a size was of, by the pattern of its name: also sizes that the catalogue never had.
pub fn retired(size: &str) -> Option<Retired> {
    let lower = size.to_ascii_lowercase();
    let (lower, promo) = match lower.strip_suffix("_promo") {
        Some(plain) => (plain, true),
        None => (lower.as_str(), false),
    };
    if let Some(basic) = lower.strip_prefix("basic_a") {
        return is_number(basic).then_some(AV1);
    }
    let name = lower.strip_prefix("standard_")?;
    let letters = name.find(|c: char| c.is_ascii_digit())?;
    let (series, rest) = name.split_at(letters);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let tail = &rest[digits..];
    match (series, tail) {
        ("nc", "" | "r") if promo => Some(gpu("NC_Promo", "Standard_NC4as_T4_v3")),
        ("nc", "" | "r") => Some(gpu("NC", "Standard_NC4as_T4_v3")),
        ("nc", "s_v2" | "rs_v2") => Some(gpu("NCv2", "Standard_NC24ads_A100_v4")),
        ("nd", "s" | "rs") => Some(gpu("ND", "Standard_NC24ads_A100_v4")),
        ("nv", "") if promo => Some(gpu("NV_Promo", "Standard_NV36ads_A10_v5")),
        ("nv", "") => Some(gpu("NV", "Standard_NV36ads_A10_v5")),
        ("a", "") => Some(AV1),
        ("hb", tail)
            if tail == "rs"
                || tail
                    .strip_prefix('-')
                    .is_some_and(|rest| rest.ends_with("rs") && is_number(rest.trim_end_matches("rs"))) =>
        {
            Some(Retired { series: "HB", since: "2024-08-31", instead: "Standard_HB120rs_v3" })
        }
        _ => None,
    }
}

const AV1: Retired = Retired { series: "Av1", since: "2024-08-31", instead: "Standard_D2s_v3" };

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn by_the_pattern_of_the_name() {
        let series = |size: &str| retired(size).map(|retired| retired.series);
        for (size, of) in [
            ("Standard_NC6", "NC"),
            ("STANDARD_NC24R", "NC"),
            ("Standard_NC12_Promo", "NC_Promo"),
            ("Standard_NC24rs_v2", "NCv2"),
            ("Standard_ND24rs", "ND"),
            ("Standard_NV24", "NV"),
            ("Standard_NV6_Promo", "NV_Promo"),
            ("Standard_A3", "Av1"),
            ("Basic_A1", "Av1"),
            ("Standard_HB60rs", "HB"),
            ("Standard_HB60-15rs", "HB"),
        ] {
            assert_eq!(series(size), Some(of), "{size}");
        }
        for size in [
            "Standard_NC6s_v3",
            "Standard_NC4as_T4_v3",
            "Standard_ND40rs_v2",
            "Standard_NV12s_v3",
            "Standard_NV36ads_A10_v5",
            "Standard_A4_v2",
            "Standard_A8m_v2",
            "Standard_HB120rs_v2",
            "Standard_DS3_v2",
            "Standard_",
            "",
        ] {
            assert_eq!(series(size), None, "{size}");
        }
    }

    #[test]
    fn what_to_use_instead_can_be_had() {
        for size in [
            "Standard_NC6",
            "Standard_NC6s_v2",
            "Standard_ND6s",
            "Standard_NV6",
            "Standard_A1",
            "Standard_HB60rs",
        ] {
            let instead = retired(size).unwrap().instead;
            assert!(catalogue::size(instead).is_some() && retired(instead).is_none(), "{size}: {instead}");
        }
    }
}
