//! Every bound of this crate, by name.

/// Component files may use component files; deeper than this it is taken for a mistake.
pub(crate) const COMPONENT_DEPTH_MAX: usize = 16;
