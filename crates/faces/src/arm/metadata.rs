//! The cloud metadata document: where a client finds every endpoint of this "cloud". Open to all.

use axum::response::Response;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::reply;

/// Older api-versions list clouds; from 2020 on one object is answered, and `az` insists on it.
pub(crate) fn endpoints(ask: &Ask) -> Response {
    let document = document(&ask.base);
    let lists = ask.query.get("api-version").is_some_and(|version| version < "2020");
    reply::ok(&if lists { json!([document]) } else { document })
}

fn document(base: &str) -> Value {
    json!({
        "name": "LocalCloud",
        // The Azure ML audience is derived from the portal's host: https://ml.azure.local.
        "portal": "https://portal.azure.local/",
        "resourceManager": format!("{base}/"),
        "authentication": {
            "loginEndpoint": format!("{base}/"),
            "audiences": [format!("{base}/"), "https://management.core.windows.net/"],
            "tenant": "common",
            "identityProvider": "AAD",
        },
        "suffixes": {
            "storage": "core.windows.net",
            "keyVaultDns": "vault.azure.net",
            "acrLoginServer": "azurecr.io",
            "azureDataLakeStoreFileSystem": "azuredatalakestore.net",
            "azureDataLakeAnalyticsCatalogAndJob": "azuredatalakeanalytics.net",
            "sqlServerHostname": "database.windows.net",
            "mhsmDns": "managedhsm.azure.net",
            "mysqlServerEndpoint": "mysql.database.azure.com",
            "postgresqlServerEndpoint": "postgres.database.azure.com",
            "mariadbServerEndpoint": "mariadb.database.azure.com",
            "synapseAnalytics": "dev.azuresynapse.net",
        },
        // `az` wants these to be there; nothing of them is served here.
        "graph": "https://graph.windows.net/",
        "graphAudience": "https://graph.windows.net/",
        "microsoftGraphResourceId": "https://graph.microsoft.com/",
        "media": "https://rest.media.azure.net",
        "batch": "https://batch.core.windows.net/",
        "sqlManagement": "https://management.core.windows.net:8443/",
        "activeDirectoryDataLake": "https://datalake.azure.net/",
        "logAnalyticsResourceId": "https://api.loganalytics.io",
        "appInsightsResourceId": "https://api.applicationinsights.io",
        "vmImageAliasDoc": format!("{base}/"),
    })
}
