//! `tollkeeper openapi`

use crate::config::Config;

pub fn run(config: &Config) -> Result<(), String> {
    let document = api::openapi::document(&api::routes::table(), &config.public_url(), &config.service_url());
    super::print(&serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?);
    Ok(())
}
