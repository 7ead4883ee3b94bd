//! `vmSizes`: the catalogue of sizes a cluster may have.

use axum::response::Response;
use neap_core::own::Offer;
use neap_core::retired::retired;
use neap_core::{Code, MicroUsd, Refusal};
use serde_json::{Value, json};

use super::{subscriptions, with_snake_twins};
use crate::app::App;
use crate::reply;

pub(crate) fn list(app: &App, subscription: &str, location: &str) -> Result<Response, Refusal> {
    subscriptions::check(app, subscription)?;
    check_location(app, location)?;
    let canonical = neap_core::names::canonical_location(location);
    let sizes: Vec<Value> = app.state().settings.offers_in(&canonical).iter().map(answer).collect();
    let value = with_snake_twins(&Value::Array(sizes));
    Ok(reply::ok(&json!({"value": value})))
}

pub(crate) fn check_location(app: &App, location: &str) -> Result<(), Refusal> {
    let wanted = neap_core::names::canonical_location(location);
    if app.state().settings.locations.contains(&wanted) {
        return Ok(());
    }
    Err(Refusal::because(
        Code::LocationNotAvailable,
        format!("There is no location '{location}' on this server."),
    ))
}

fn answer(size: &Offer) -> Value {
    let price = |tier: &str, price: Option<MicroUsd>| {
        price.map(|p| json!({"retailPrice": p.0 as f64 / 1_000_000.0, "osType": "Linux", "vmTier": tier}))
    };
    let prices: Vec<Value> = [
        price("Standard", size.dedicated_price),
        price("LowPriority", size.low_priority_price.filter(|_| size.low_priority_capable)),
    ]
    .into_iter()
    .flatten()
    .collect();
    json!({
        "name": size.name,
        "family": size.family,
        "vCPUs": size.capacity.cpus_milli / 1_000,
        "gpus": size.capacity.gpus,
        "osVhdSizeMB": size.os_disk_mb,
        "maxResourceVolumeMB": size.temp_disk_mb,
        "memoryGB": size.capacity.memory_mb as f64 / 1024.0,
        "lowPriorityCapable": size.low_priority_capable,
        "premiumIO": size.premium_io,
        "supportedComputeTypes": ["AmlCompute"],
        "estimatedVMPrices": {"billingCurrency": "USD", "unitOfMeasure": "OneHour", "values": prices},
        "neapRetired": retired(&size.name).filter(|_| !size.own).map(|retired| {
            json!({"series": retired.series, "since": retired.since, "instead": retired.instead})
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_as_azure_shows_it() {
        let body =
            with_snake_twins(&answer(&neap_core::own::Own::default().find("Standard_DS3_v2").unwrap()));
        assert_eq!(body["name"], "Standard_DS3_v2");
        assert_eq!((&body["vCPUs"], &body["v_cp_us"]), (&json!(4), &json!(4)));
        assert_eq!(body["memory_gb"], json!(14.0));
        assert_eq!(body["neapRetired"], Value::Null);
    }

    #[test]
    fn a_size_that_is_no_more_says_what_to_use() {
        let body = answer(&neap_core::own::Own::default().find("Standard_NC6").unwrap());
        assert_eq!(
            body["neapRetired"],
            json!({"series": "NC", "since": "2023-08-31", "instead": "Standard_NC4as_T4_v3"})
        );
    }
}
