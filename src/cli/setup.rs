//! `tollkeeper setup`

use operators::first_account;
use serde_json::json;

use crate::config::Config;

pub fn run(config: Config, as_json: bool) -> Result<(), String> {
    if !config.console.enabled {
        return Err(
            "the first account is created in the console, but the console is off (`console.enabled`). To \
             create an operator, run `tollkeeper user create --operator --email ADDRESS`"
                .to_owned(),
        );
    }
    let link = super::runtime()?.block_on(async {
        let app = super::app(config).await?;
        first_account::renew_link(&app.operators).await.map_err(|error| error.to_string())
    })?;
    let link = link.ok_or_else(|| {
        "this installation already has an operator, shown by `tollkeeper operator list`; \
         `tollkeeper operator grant` and `tollkeeper user create --operator` make more"
            .to_owned()
    })?;
    super::print(&if as_json {
        json!({ "link": link }).to_string()
    } else {
        format!("Open this link to create the first account, an operator account. It works once:\n{link}")
    });
    Ok(())
}
