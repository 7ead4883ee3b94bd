//! What Azure ML has and Neap does not: each refused with one sentence on what to use instead.

use neap_core::Refusal;

use super::errors::not_supported;

const SENTENCES: &[(&str, &str)] = &[
    (
        "onlineendpoints",
        "Online endpoints are not part of Neap, which runs jobs; serve a model with your own web service.",
    ),
    (
        "serverlessendpoints",
        "Serverless endpoints are not part of Neap, which runs jobs; serve a model with your own web service.",
    ),
    ("registries", "Registries are not part of Neap; register environments and data in the workspace."),
    (
        "connections",
        "Connections are not supported; give credentials to jobs as environment variables or datastores.",
    ),
    ("featuresets", "Feature stores are not part of Neap."),
    ("featurestoreentities", "Feature stores are not part of Neap."),
    ("labelingjobs", "Labeling is not part of Neap."),
    ("marketplacesubscriptions", "Marketplace subscriptions are not part of Neap."),
    (
        "privateendpointconnections",
        "Private endpoints are not supported; bind the server's address with --listen instead.",
    ),
    ("outboundrules", "Managed networks are not supported yet."),
];

/// The refusal for a kind of resource (lower case) that is known and not supported.
pub(crate) fn refuse(kind: &str) -> Option<Refusal> {
    SENTENCES.iter().find(|(known, _)| *known == kind).map(|(_, sentence)| not_supported(*sentence))
}
