use super::*;
use serde_json::json;
