//! POST /console/account/theme

use api::Api;
use api::gate::{SessionScope, Theme, Visit};
use http::header;
use input::record;
use input::types::Text;
use kernel::error::{Code, Error};
use web::forms::ObjectForm;

use crate::console::Console;
use crate::notices::Done;
use crate::page::Page;

record! {
    /// The theme of the pages.
    #[derive(Debug)]
    pub struct ChooseTheme in Api {
        theme: Text<16> = required,
    }
}

/// Set the theme of the pages in this browser.
pub async fn create(
    console: Console,
    _: Visit<SessionScope>,
    mut form: ObjectForm<ChooseTheme>,
) -> Result<Page, Error> {
    let chosen = form.take()?.theme.0;
    let theme = Theme::parse(&chosen);
    if theme.is_none() && chosen != "system" {
        return Err(Error::new(Code::InvalidRequest).message("Choose one of the themes."));
    }
    let cookie = Theme::set(theme, console.is_secure())?;
    Ok(Page::done(&console.link("/account"), Done::ThemeSaved)?.with_header(header::SET_COOKIE, cookie))
}
