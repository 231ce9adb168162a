//! QR codes as SVG.

use std::fmt::Write;

use kernel::error::Error;
use qrcodegen::{QrCode as Modules, QrCodeEcc};

/// The number of light modules on each side of a code (ISO/IEC 18004, 6.3.8).
const QUIET_ZONE: i32 = 4;

/// A QR code for an SVG image in which one unit is one module.
pub struct QrCode {
    /// The width and height, including the light modules around the code.
    pub size: i32,
    /// The rows of dark modules, as the `d` attribute of a path with a stroke width of 1.
    pub path: String,
}

impl QrCode {
    /// Encodes a string.
    ///
    /// # Errors
    /// An error if the text is longer than 2,331 bytes.
    pub fn new(text: &str) -> Result<Self, Error> {
        let modules = Modules::encode_text(text, QrCodeEcc::Medium).map_err(Error::internal)?;
        let mut path = String::new();
        for y in 0..modules.size() {
            write!(path, "M{QUIET_ZONE} {}.5", y + QUIET_ZONE).map_err(Error::internal)?;
            let mut x = 0;
            while x < modules.size() {
                let light = run(&modules, x, y, false)?;
                let dark = run(&modules, x + light, y, true)?;
                if dark > 0 {
                    let gap = if light > 0 { format!("m{light} 0") } else { String::new() };
                    write!(path, "{gap}h{dark}").map_err(Error::internal)?;
                }
                x += light + dark;
            }
        }
        Ok(Self { size: modules.size() + 2 * QUIET_ZONE, path })
    }
}

/// Returns the number of consecutive dark (or light) modules in row `y` from column `x` on.
fn run(modules: &Modules, x: i32, y: i32, is_dark: bool) -> Result<i32, Error> {
    let run = (x..modules.size()).take_while(|x| modules.get_module(*x, y) == is_dark).count();
    i32::try_from(run).map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_draws_the_dark_modules() {
        let code = QrCode::new("otpauth://totp/a").unwrap();
        // Version 2 has 25 modules, and the quiet zone adds 8. The first row begins with the seven dark
        // modules of a finder pattern.
        assert_eq!(code.size, 33);
        assert!(code.path.starts_with("M4 4.5h7m"), "{}", code.path);
        assert!(code.path.contains("M4 5.5h1m5 0h1"), "{}", code.path);
        // Exactly the dark modules are drawn.
        let modules = Modules::encode_text("otpauth://totp/a", QrCodeEcc::Medium).unwrap();
        for (y, row) in code.path.split('M').skip(1).enumerate() {
            let (start, runs) = row.split_once(".5").unwrap();
            assert_eq!(start, format!("4 {}", y + 4));
            let mut drawn = Vec::new();
            for part in runs.split(['h', 'm']).filter(|part| !part.is_empty()) {
                match part.strip_suffix(" 0") {
                    Some(light) => drawn.extend(vec![false; light.parse().unwrap()]),
                    None => drawn.extend(vec![true; part.parse().unwrap()]),
                }
            }
            drawn.resize(25, false);
            let y = i32::try_from(y).unwrap();
            let dark: Vec<_> = (0..25).map(|x| modules.get_module(x, y)).collect();
            assert_eq!(drawn, dark, "row {y}");
        }
        assert!(QrCode::new(&"a".repeat(3_000)).is_err());
    }
}
