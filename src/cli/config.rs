//! `tollkeeper config`

use crate::config::Config;

pub fn run(config: &Config, as_json: bool) -> Result<(), String> {
    super::print(&if as_json { config.to_json() } else { config.to_toml() });
    Ok(())
}
