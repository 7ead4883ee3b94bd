//! How much one template may cost to evaluate: a few lines of `concat` over variables that name each other double with every
//! line, so work and output are counted over the whole template. Pure.

use std::cell::Cell;

use serde_json::Value;

use crate::json_bytes::json_bytes;
use crate::limits::{EXPRESSION_BYTES_MAX, EXPRESSION_STEPS_MAX};

/// What is left for one template. Once it is used up, every further evaluation fails.
#[derive(Debug)]
pub(super) struct Allowance {
    steps: Cell<usize>,
    bytes: Cell<usize>,
    overdrawn: Cell<Option<&'static str>>,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            steps: Cell::new(EXPRESSION_STEPS_MAX),
            bytes: Cell::new(EXPRESSION_BYTES_MAX),
            overdrawn: Cell::new(None),
        }
    }
}

impl Allowance {
    /// For one function call, or one value that is looked at.
    pub fn step(&self) -> Result<(), String> {
        self.take(&self.steps, 1, "steps")
    }

    /// For bytes that are read or made. Called before they are made.
    pub fn bytes(&self, bytes: usize) -> Result<(), String> {
        self.take(&self.bytes, bytes, "bytes")
    }

    /// For a value that is about to be copied.
    pub fn value(&self, value: &Value) -> Result<(), String> {
        self.bytes(json_bytes(value))
    }

    fn take(&self, left: &Cell<usize>, amount: usize, unit: &'static str) -> Result<(), String> {
        match left.get().checked_sub(amount) {
            Some(rest) if self.overdrawn.get().is_none() => {
                left.set(rest);
                Ok(())
            }
            _ => {
                let unit = self.overdrawn.get().unwrap_or(unit);
                self.overdrawn.set(Some(unit));
                Err(why(unit))
            }
        }
    }

    /// Why nothing more is evaluated, once the allowance is used up.
    pub fn overdrawn(&self) -> Option<String> {
        self.overdrawn.get().map(why)
    }
}

fn why(unit: &str) -> String {
    let limit = if unit == "steps" { EXPRESSION_STEPS_MAX } else { EXPRESSION_BYTES_MAX };
    format!("the expressions of the template take more than {limit} {unit} to evaluate")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_up_to_the_limit_and_not_beyond() {
        let steps = Allowance::default();
        assert!((0..EXPRESSION_STEPS_MAX).all(|_| steps.step().is_ok()));
        assert_eq!(steps.overdrawn(), None);
        assert!(steps.step().unwrap_err().contains("steps"));
        assert!(steps.bytes(1).is_err(), "nothing more is evaluated");
        let bytes = Allowance::default();
        assert!(bytes.bytes(EXPRESSION_BYTES_MAX).is_ok());
        assert!(bytes.bytes(1).unwrap_err().contains("bytes"));
        assert!(bytes.overdrawn().is_some());
    }
}
