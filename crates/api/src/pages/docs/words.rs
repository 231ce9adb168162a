//! Text in which some parts are code.

/// Text in which the parts between backticks are code.
#[derive(Clone, Debug, Default)]
pub struct Words(Vec<Piece>);

/// A part of the text.
#[derive(Clone, Debug)]
pub struct Piece {
    pub is_code: bool,
    pub text: String,
}

impl Words {
    pub fn new(text: &str) -> Self {
        let pieces = text.split('`').enumerate();
        let pieces =
            pieces.map(|(number, text)| Piece { is_code: number.rem_euclid(2) == 1, text: text.to_owned() });
        Self(pieces.filter(|piece| !piece.text.is_empty()).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn pieces(&self) -> std::slice::Iter<'_, Piece> {
        self.0.iter()
    }
}
