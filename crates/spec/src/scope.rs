//! Where a request goes: subscription, resource group and workspace.

/// The workspace that names in a file are resolved against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    pub subscription_id: String,
    pub resource_group: String,
    pub workspace: String,
}

impl Scope {
    /// The ARM id of the resource group.
    pub fn resource_group_id(&self) -> String {
        format!("/subscriptions/{}/resourceGroups/{}", self.subscription_id, self.resource_group)
    }

    /// The ARM id of the workspace; ids of computes, codes and environments begin with it.
    pub fn workspace_id(&self) -> String {
        format!(
            "{}/providers/Microsoft.MachineLearningServices/workspaces/{}",
            self.resource_group_id(),
            self.workspace
        )
    }

    pub(crate) fn subnet_id(&self, vnet: &str, subnet: &str) -> String {
        format!(
            "{}/providers/Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet}",
            self.resource_group_id()
        )
    }
}
