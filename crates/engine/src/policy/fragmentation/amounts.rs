//! Free compute by what keeps typical pods from it.

/// The usability of a free thousandth of a GPU for a typical pod. The order is that of the sums in
/// the authors' simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Usability {
    /// The node has neither the CPU nor the GPUs (`q1`).
    LacksBoth,
    /// The node has the CPU but not the GPUs, or the pod fits, but not on this GPU (`q2`).
    LacksGpu,
    /// The pod can use it (`q3`).
    Usable,
    /// The node has the GPUs but not the CPU (`q4`).
    LacksCpu,
    /// The pod fits and asks for no GPU (`xl`).
    NotAskedFor,
    /// The pod asks for no GPU and does not fit either (`xr`).
    NotAskedForLacksCpu,
    /// The pod is not allowed on the node: another GPU model, a taint.
    NoAccess,
}

impl Usability {
    /// All, in their order.
    pub const ALL: [Self; 7] = [
        Self::LacksBoth,
        Self::LacksGpu,
        Self::Usable,
        Self::LacksCpu,
        Self::NotAskedFor,
        Self::NotAskedForLacksCpu,
        Self::NoAccess,
    ];
}

/// Free compute of GPUs by [`Usability`], expected over the typical pods.
///
/// Exact: whole numbers over the total popularity of the typical pods. Sums over nodes are
/// therefore independent of order, and subtracting all amounts yields zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amounts {
    parts: [i128; 7],
    /// One thousandth of a GPU; 0 without typical pods.
    unit: i128,
}

impl Amounts {
    pub(super) fn nothing(unit: i128) -> Self {
        Self { parts: [0; 7], unit }
    }

    pub(super) fn add(&mut self, class: Usability, popularity: i128, milli: i64) {
        self.parts[class as usize] += popularity * i128::from(milli);
    }

    /// Thousandths of GPUs of a class.
    pub fn milli(&self, class: Usability) -> f64 {
        self.float(self.parts[class as usize])
    }

    /// Thousandths of GPUs that are free.
    pub fn free_milli(&self) -> f64 {
        self.float(self.parts.iter().sum())
    }

    /// Thousandths of GPUs that typical pods cannot use: all free ones that are not
    /// [`Usability::Usable`].
    pub fn fragment_milli(&self) -> f64 {
        self.float(self.fragment())
    }

    /// Fragments in percent of what is free; 0 if nothing is.
    pub fn percent(&self) -> f64 {
        percent(self.fragment_milli(), self.free_milli())
    }

    /// Fragments rounded to whole thousandths of GPUs, halves up.
    pub fn rounded_fragment(&self) -> i64 {
        if self.unit == 0 {
            return 0;
        }
        let rounded = (2 * self.fragment() + self.unit).div_euclid(2 * self.unit);
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// Sums.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.parts.iter_mut().zip(&other.parts).for_each(|(part, more)| *part += more);
        self
    }

    /// Differences.
    #[must_use]
    pub fn minus(mut self, other: &Self) -> Self {
        self.parts.iter_mut().zip(&other.parts).for_each(|(part, less)| *part -= less);
        self
    }

    fn fragment(&self) -> i128 {
        self.parts.iter().sum::<i128>() - self.parts[Usability::Usable as usize]
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "for people and reports; decisions use integers"
    )]
    fn float(&self, parts: i128) -> f64 {
        if self.unit == 0 { 0.0 } else { parts as f64 / self.unit as f64 }
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
