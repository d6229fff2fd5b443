//! Which emulated functions a VM gets, and how large their memory windows can be.

use std::fmt;
use std::str::FromStr;

use axon_model::FaultWord;

const GIB: u64 = 1 << 30;

/// Functions that one VM holds.
pub const MOST_FUNCTIONS: usize = 16;

/// What firmware places as BAR4s in 40 guest-physical bits, beside sixteen BAR0s.
///
/// Tried with SeaBIOS 1.17, which places 384 GiB in any mixture and fails at 512. Specification 01
/// §14.2 names smaller sets that are known to work; all of them are inside.
const BAR4_ROOM: u64 = 384 * GIB;

/// A product the model emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// Trainium 1.
    Trn1,
    /// Inferentia 2.
    Inf2,
    /// Trainium 2.
    Trn2,
    /// Trainium 3.
    Trn3,
}

impl Product {
    /// Every product.
    pub const ALL: [Product; 4] = [Product::Trn1, Product::Inf2, Product::Trn2, Product::Trn3];

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Product::Trn1 => "trn1",
            Product::Inf2 => "inf2",
            Product::Trn2 => "trn2",
            Product::Trn3 => "trn3",
        }
    }

    /// Length of its BAR4 (specification 00 §8).
    const fn bar4_bytes(self) -> u64 {
        match self {
            Product::Trn1 | Product::Inf2 => 32 * GIB,
            Product::Trn2 | Product::Trn3 => 256 * GIB,
        }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Product {
    type Err = String;

    fn from_str(text: &str) -> Result<Product, String> {
        Product::ALL
            .into_iter()
            .find(|product| product.name() == text)
            .ok_or_else(|| format!("{text:?} is no device: trn1, inf2, trn2 or trn3"))
    }
}

/// One emulated function of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) product: Product,
    /// A length other than the product's own.
    pub(crate) bar4_bytes: Option<u64>,
    pub(crate) faults: Vec<String>,
}

impl Function {
    /// Whether the function has no BAR4 at all.
    pub(crate) fn lacks_bar4(&self) -> bool {
        self.faults.iter().any(|fault| fault == "bar4-absent")
    }
}

/// The functions of a VM, and a sentence where they differ from their products.
///
/// # Errors
/// A sentence: too many functions, or a fault for a device that is not there.
pub(crate) fn plan(
    products: &[Product],
    faults: &[FaultWord],
) -> Result<(Vec<Function>, Option<String>), String> {
    if products.len() > MOST_FUNCTIONS {
        return Err(format!("{} devices asked, a VM holds {MOST_FUNCTIONS}", products.len()));
    }
    let beyond = |fault: &&FaultWord| fault.device.is_some_and(|device| device >= products.len());
    if let Some(FaultWord { text, device: Some(device) }) = faults.iter().find(beyond) {
        return Err(format!("fault {text} names device {device}, there are {}", products.len()));
    }
    let limit = bar4_limit(products);
    let functions = products.iter().enumerate().map(|(index, product)| Function {
        product: *product,
        bar4_bytes: (product.bar4_bytes() > limit).then_some(limit),
        faults: faults
            .iter()
            .filter(|fault| fault.device.is_none_or(|device| device == index))
            .map(|fault| fault.text.clone())
            .collect(),
    });
    let functions: Vec<Function> = functions.collect();
    let shrunk = functions.iter().filter(|function| function.bar4_bytes.is_some()).count();
    let note = (shrunk > 0).then(|| {
        let size = limit / GIB;
        format!("BAR4 of {shrunk} devices shrunk to {size} GiB: 40 address bits hold no more")
    });
    Ok((functions, note))
}

/// The largest power of two that, as the limit of every BAR4, lets all of them be placed.
fn bar4_limit(products: &[Product]) -> u64 {
    let room_taken =
        |limit: u64| products.iter().map(|product| product.bar4_bytes().min(limit)).sum::<u64>();
    let mut limit = Product::Trn2.bar4_bytes();
    while room_taken(limit) > BAR4_ROOM {
        limit /= 2;
    }
    limit
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(product: Product, count: usize) -> u64 {
        bar4_limit(&vec![product; count]) / GIB
    }

    #[test]
    fn bar4s_fit_into_40_bits() {
        assert_eq!(limit_of(Product::Trn2, 1), 256);
        assert_eq!(limit_of(Product::Trn2, 2), 128);
        assert_eq!(limit_of(Product::Trn3, 3), 128);
        assert_eq!(limit_of(Product::Trn2, 4), 64);
        assert_eq!(limit_of(Product::Trn2, 16), 16);
        assert_eq!(limit_of(Product::Trn1, 12), 256);
        assert_eq!(limit_of(Product::Trn1, 16), 16);
    }

    #[test]
    fn full_windows_are_not_mentioned() {
        let (functions, note) = plan(&[Product::Trn1; 4], &[]).unwrap();
        assert!(note.is_none());
        assert!(functions.iter().all(|function| function.bar4_bytes.is_none()));
    }

    #[test]
    fn only_what_is_too_large_is_shrunk() {
        let (functions, note) = plan(&[Product::Trn2, Product::Trn2, Product::Trn1], &[]).unwrap();
        assert_eq!(functions[0].bar4_bytes, Some(128 * GIB));
        assert_eq!(functions[2].bar4_bytes, None);
        assert!(note.unwrap().contains("128 GiB"));
    }

    #[test]
    fn faults_go_to_their_devices() {
        let faults =
            ["bar4-absent@1", "drop-marker=2,after=3,times=1"].map(|text| text.parse().unwrap());
        let (functions, _) = plan(&[Product::Trn1, Product::Inf2], &faults).unwrap();
        assert_eq!(functions[0].faults, ["drop-marker=2,after=3,times=1"]);
        assert_eq!(functions[1].faults, ["bar4-absent", "drop-marker=2,after=3,times=1"]);
        assert!(functions[1].lacks_bar4() && !functions[0].lacks_bar4());
    }

    #[test]
    fn wrong_faults_are_refused() {
        let beyond = "slow@1".parse().unwrap();
        assert!(plan(&[Product::Trn1], &[beyond]).unwrap_err().contains("there are 1"));
    }

    #[test]
    fn a_vm_holds_sixteen() {
        assert!(plan(&[Product::Trn1; 16], &[]).is_ok());
        assert!(plan(&[Product::Trn1; 17], &[]).is_err());
        assert!(plan(&[], &[]).is_ok());
    }

    #[test]
    fn products_are_known_by_name() {
        for product in Product::ALL {
            assert_eq!(product.name().parse(), Ok(product));
        }
        assert!("trn9".parse::<Product>().is_err());
    }
}
